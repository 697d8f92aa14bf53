-- Makes owner the one reader of a topic for a consumer group (take), or keeps it so, and moves the group on to position, but
-- never back. Answers with the group's position, and nothing while another has the lease, or, without take, where owner has
-- it no more. With lease_ms 0 it gives the lease back. The topic '' is the whole log.
SELECT EXISTS (SELECT 1 FROM (SELECT 1)
               LEFT JOIN "main"."outbox_log_group" AS g ON g.group_name = ?1 ->> '$.group' AND g.topic = ?1 ->> '$.topic'
               WHERE g.owner_token = ?1 ->> '$.owner'
                  OR (?1 ->> '$.take' AND (g.owner_token IS NULL OR g.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))));

INSERT INTO "main"."outbox_log_group" (group_name, topic)
SELECT ?1 ->> '$.group', ?1 ->> '$.topic' WHERE ?1 ->> '$.take'
ON CONFLICT (group_name, topic) DO NOTHING;

UPDATE "main"."outbox_log_group"
SET position = CASE WHEN owner_token = ?1 ->> '$.owner' THEN max(position, ?1 ->> '$.position') ELSE position END,
    owner_token = CASE WHEN ?1 ->> '$.lease_ms' > 0 THEN ?1 ->> '$.owner' END,
    locked_until = CASE WHEN ?1 ->> '$.lease_ms' > 0 THEN CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms') END
WHERE group_name = ?1 ->> '$.group' AND topic = ?1 ->> '$.topic'
  AND (owner_token = ?1 ->> '$.owner'
       OR (?1 ->> '$.take' AND (owner_token IS NULL OR locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))))
RETURNING position;
