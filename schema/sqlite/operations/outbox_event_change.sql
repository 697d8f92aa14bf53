-- Archives, deletes or restores a stream, if it has the expected version (as in outbox_event_append). Returns one row: kind 1
-- if it was changed, or kind 2 with the stream's version. Deleting hides its events. Restoring shows them again, as far as they
-- were not purged, and opens an archived stream. A stream that has nothing to restore is changed, too.
UPDATE "main"."outbox_event_stream" INDEXED BY "outbox_event_stream_name"
SET archived = CASE ?1 ->> '$.change' WHEN 'archive' THEN 1 WHEN 'restore' THEN 0 ELSE archived END,
    hidden   = CASE ?1 ->> '$.change' WHEN 'delete' THEN version WHEN 'restore' THEN purged ELSE hidden END
WHERE name = ?1 ->> '$.stream'
  AND CASE ?1 ->> '$.expected' WHEN -2 THEN 1 WHEN -1 THEN version > hidden ELSE version = ?1 ->> '$.expected' AND version > hidden END
  AND (?1 ->> '$.change' = 'restore' OR version > hidden);

SELECT CASE WHEN changes() > 0 THEN 1 ELSE 2 END,
       coalesce((SELECT CASE WHEN s.version > s.hidden THEN s.version ELSE 0 END FROM "main"."outbox_event_stream" AS s INDEXED BY "outbox_event_stream_name" WHERE s.name = ?1 ->> '$.stream'), 0);
