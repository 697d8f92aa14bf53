-- Reads joins: the one with an id; or a page of those with a grouping key or of those that are pending, in order of id after a
-- given one; or of all, from the newest on, before a given one.
WITH page AS MATERIALIZED (
    SELECT ?1 ->> '$.id' AS join_id WHERE ?1 ->> '$.id' IS NOT NULL
    UNION ALL
    SELECT * FROM (
        SELECT j.join_id FROM "main"."outbox_join" AS j INDEXED BY "outbox_join_group"
        WHERE j.grouping_key IS NOT NULL AND j.grouping_key = ?1 ->> '$.grouping_key' AND j.join_id > coalesce(?1 ->> '$.after', '')
        ORDER BY j.join_id
        LIMIT (?1 ->> '$.limit'))
    UNION ALL
    SELECT * FROM (
        SELECT j.join_id FROM "main"."outbox_join" AS j INDEXED BY "outbox_join_pending"
        WHERE ?1 ->> '$.pending' AND j.status = 0 AND j.join_id > coalesce(?1 ->> '$.after', '')
        ORDER BY j.join_id
        LIMIT (?1 ->> '$.limit'))
    UNION ALL
    SELECT * FROM (
        SELECT j.join_id FROM "main"."outbox_join" AS j
        WHERE ?1 ->> '$.newest' AND j.join_id < coalesce(?1 ->> '$.before', 'g')
        ORDER BY j.join_id DESC
        LIMIT (?1 ->> '$.limit')))
SELECT j.join_id, j.grouping_key, j.expected_steps, j.completed_steps, j.failed_steps, j.quorum, j.fail_fast, j.status,
       j.metadata, j.created_at, j.last_updated_at
FROM page AS p CROSS JOIN "main"."outbox_join" AS j ON j.join_id = p.join_id
ORDER BY CASE WHEN ?1 ->> '$.newest' THEN NULL ELSE j.join_id END, j.join_id DESC;
