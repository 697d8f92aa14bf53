-- Archives, deletes or restores a stream, if it has the expected version (as in outbox_event_append). Returns one row: kind 1
-- if it was changed, or kind 2 with the stream's version. Deleting hides its events. Restoring shows them again, as far as they
-- were not purged, and opens an archived stream. A stream that has nothing to restore is changed, too.
-- Called as: SELECT * FROM "public"."outbox_event_change"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_event_change"(arg json) RETURNS TABLE (kind int, version bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    wanted   text COLLATE "C" := arg->>'stream';
    expected bigint           := (arg->>'expected')::bigint;
    what     text             := arg->>'change';
BEGIN
    RETURN QUERY
    UPDATE "public"."outbox_event_stream" AS s
    SET archived = CASE what WHEN 'archive' THEN true WHEN 'restore' THEN false ELSE s.archived END,
        hidden   = CASE what WHEN 'delete' THEN s.version WHEN 'restore' THEN s.purged ELSE s.hidden END
    WHERE s.name = wanted
      AND CASE expected WHEN -2 THEN true WHEN -1 THEN s.version > s.hidden ELSE s.version = expected AND s.version > s.hidden END
      AND (what = 'restore' OR s.version > s.hidden)
    RETURNING 1, s.version;
    IF NOT FOUND THEN
        RETURN QUERY
        SELECT 2, coalesce((SELECT CASE WHEN s.version > s.hidden THEN s.version ELSE 0 END FROM "public"."outbox_event_stream" AS s WHERE s.name = wanted), 0);
    END IF;
END
$outbox$;
