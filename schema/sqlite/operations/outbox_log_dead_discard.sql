-- Deletes dead letters of a consumer group: up to limit, in log order, after a position. The topic and the list of positions
-- are optional; requeued restricts them to those. The messages are then purged with the rest of the log. Returns how many, and
-- the position of the last.
DELETE FROM "main"."outbox_log_dead"
WHERE (group_name, position, topic) IN (
    SELECT d.group_name, d.position, d.topic FROM "main"."outbox_log_dead" AS d
    WHERE d.group_name = ?1 ->> '$.group' AND d.position > ?1 ->> '$.after'
      AND (?1 ->> '$.topic' IS NULL OR d.topic = ?1 ->> '$.topic')
      AND (?1 -> '$.positions' IS NULL OR d.position IN (SELECT i.value FROM json_each(?1, '$.positions') AS i))
      AND (d.requeued OR NOT (?1 ->> '$.requeued'))
    ORDER BY d.position
    LIMIT (?1 ->> '$.limit'))
RETURNING 1, position;
