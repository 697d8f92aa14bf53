-- Reads a page of the steps of a join, in order of message id after a given one.
SELECT m.message_id, m.ends_by = 1, m.status, m.created_at
FROM "main"."outbox_join_member" AS m
WHERE m.join_id = ?1 ->> '$.id' AND (?1 ->> '$.after' IS NULL OR m.message_id > ?1 ->> '$.after')
ORDER BY m.message_id
LIMIT (?1 ->> '$.limit');
