-- Makes owner the only reader of a topic for a consumer group (take), or renews that, and moves the group on to position,
-- but never back. A reader with a higher version takes the lease from one with a lower version at once. Returns the state of
-- the group, held or not, and the last position given; nothing if there is no such group, or if another reader with the same
-- version and shape has it, so that readers standing by write nothing. With lease_ms 0 it gives the lease back; with take and
-- lease_ms 0 it creates the group, and leaves one that there is alone. The topic '' is the whole log. A group is moved only
-- from where its reader believes it to be, to a message in the log. Otherwise the database is older than the reader, and
-- messages that have been given the reader's positions since are yet to be read. With once, nothing is done and returned if
-- the group has passed the position: of two transactions that move it there, one succeeds.
SELECT EXISTS (SELECT 1 FROM (SELECT 1)
               LEFT JOIN "main"."outbox_log_group" AS g ON g.group_name = ?1 ->> '$.group' AND g.topic = ?1 ->> '$.topic'
               WHERE g.owner_token = ?1 ->> '$.owner' AND (NOT coalesce(?1 ->> '$.once', 0) OR g.position < ?1 ->> '$.position')
                  OR (?1 ->> '$.take' AND (g.owner_token IS NULL OR g.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
                                           OR g.version <> ?1 ->> '$.version' OR g.shape <> ?1 ->> '$.shape')));

INSERT INTO "main"."outbox_log_group" (group_name, topic)
SELECT ?1 ->> '$.group', ?1 ->> '$.topic' WHERE ?1 ->> '$.take'
ON CONFLICT (group_name, topic) DO NOTHING;

UPDATE "main"."outbox_log_group"
SET position = CASE WHEN owner_token = ?1 ->> '$.owner' AND position >= ?1 ->> '$.from'
                     AND EXISTS (SELECT 1 FROM "main"."outbox_log_counter" AS c WHERE c.id = 1 AND c.position >= ?1 ->> '$.position')
                     AND (?1 ->> '$.message' = '' OR EXISTS (
                         SELECT 1 FROM "main"."outbox_log" AS l WHERE l.position = ?1 ->> '$.position' AND l.message_id = ?1 ->> '$.message'))
                    THEN max(position, ?1 ->> '$.position') ELSE position END,
    tried = CASE WHEN owner_token = ?1 ->> '$.owner' AND ?1 ->> '$.tried' > 0 THEN ?1 ->> '$.tried' ELSE tried END,
    attempts = CASE WHEN owner_token = ?1 ->> '$.owner' AND ?1 ->> '$.tried' > 0 THEN ?1 ->> '$.attempts' ELSE attempts END,
    version = ?1 ->> '$.version',
    shape = ?1 ->> '$.shape',
    interrupted = CASE WHEN owner_token <> ?1 ->> '$.owner' THEN 1
                       WHEN owner_token = ?1 ->> '$.owner' AND position < ?1 ->> '$.position' THEN 0 ELSE interrupted END,
    owner_token = CASE WHEN ?1 ->> '$.lease_ms' > 0 THEN ?1 ->> '$.owner' END,
    locked_until = CASE WHEN ?1 ->> '$.lease_ms' > 0 THEN CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms') END
WHERE group_name = ?1 ->> '$.group' AND topic = ?1 ->> '$.topic'
  AND (owner_token = ?1 ->> '$.owner'
       OR (?1 ->> '$.take' AND ?1 ->> '$.lease_ms' > 0
                           AND (owner_token IS NULL OR locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
                                OR version < ?1 ->> '$.version')));

SELECT coalesce(g.owner_token = ?1 ->> '$.owner', 0), g.position,
       (SELECT c.position FROM "main"."outbox_log_counter" AS c WHERE c.id = 1), g.tried, g.attempts, g.version, g.shape, g.interrupted
FROM "main"."outbox_log_group" AS g
WHERE g.group_name = ?1 ->> '$.group' AND g.topic = ?1 ->> '$.topic';
