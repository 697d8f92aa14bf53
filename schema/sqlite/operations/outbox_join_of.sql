-- The joins that have a message as a step, with the step's state and theirs.
SELECT m.join_id, m.status, m.ends_by = 1, m.created_at,
       (SELECT j.status FROM "main"."outbox_join" AS j WHERE j.join_id = m.join_id), (SELECT j.grouping_key FROM "main"."outbox_join" AS j WHERE j.join_id = m.join_id)
FROM "main"."outbox_join_member" AS m INDEXED BY "outbox_join_member_message"
WHERE m.message_id = ?1 ->> '$.id'
LIMIT (?1 ->> '$.limit');
