-- Stores a message that a consumer group gives up, with the reason. If the group gave it up before, the row is updated.
INSERT INTO "main"."outbox_log_dead" (group_name, topic, position, message_id, attempts, reason, failed_at)
VALUES (?1 ->> '$.group', ?1 ->> '$.topic', ?1 ->> '$.position', ?1 ->> '$.message', ?1 ->> '$.attempts', ?1 ->> '$.reason',
        CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))
ON CONFLICT (group_name, position, topic) DO UPDATE
SET attempts = excluded.attempts, reason = excluded.reason, failed_at = excluded.failed_at, requeued = 0;
