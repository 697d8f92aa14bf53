-- Moves a consumer group past the message of a topic that it has tried and not passed, and takes the lease from its reader,
-- which then goes on from there. Returns the message's position and attempts, or nothing if there is none.
UPDATE "main"."outbox_log_group"
SET position = tried, owner_token = NULL, locked_until = NULL
WHERE group_name = ?1 ->> '$.group' AND topic = ?1 ->> '$.topic' AND tried > position AND attempts > 0
RETURNING position, attempts;
