-- Reads joins: the one with an id, or a page of those with a grouping key, in order of id after a given one.
SELECT j.join_id, j.grouping_key, j.expected_steps, j.completed_steps, j.failed_steps, j.quorum, j.fail_fast, j.status,
       j.metadata, j.created_at, j.last_updated_at
FROM "main"."outbox_join" AS j
WHERE j.join_id = ?1 ->> '$.id'
UNION ALL
SELECT * FROM (
    SELECT j.join_id, j.grouping_key, j.expected_steps, j.completed_steps, j.failed_steps, j.quorum, j.fail_fast, j.status,
           j.metadata, j.created_at, j.last_updated_at
    FROM "main"."outbox_join" AS j INDEXED BY "outbox_join_group"
    WHERE j.grouping_key IS NOT NULL AND j.grouping_key = ?1 ->> '$.grouping_key' AND j.join_id > coalesce(?1 ->> '$.after', '')
    ORDER BY j.join_id
    LIMIT (?1 ->> '$.limit'));
