-- Pauses a topic: nothing of it is claimed once this is committed. If it is paused already, only who did it and why change,
-- not since when.
INSERT INTO "main"."outbox_paused" (topic_key, topic, paused_at, paused_by, reason)
SELECT ?1 ->> '$.topic_key', ?1 ->> '$.topic', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), ?1 ->> '$.by', ?1 ->> '$.reason'
WHERE ?1 ->> '$.topic_key' IS NOT NULL
ON CONFLICT (topic_key) DO UPDATE SET paused_by = excluded.paused_by, reason = excluded.reason;
