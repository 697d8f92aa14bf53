-- Ends or returns held messages of any number of claims in one transaction, counts the steps that have ended in their
-- joins, and answers with the receipts it refused and, under seq 0, with the joins that have ended.
-- Held means in progress with the same owner token; an expired lease that nobody took is still held.
-- Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3 fail.
-- There are no locked rows to pass over: who writes has the whole database.
-- The groups are taken apart first: else their JSON would be read again for each message. A + before status keeps the
-- planner, once it has statistics, from the indexes of leases and of ended messages: the rows are to be found by their keys.
WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
SELECT s.value AS seq, g.owner, NULL, NULL, NULL, NULL, NULL
FROM g, json_each(g.seqs) AS s
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.owner);

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e
    WHERE ?1 ->> '$.delete_acked' AND e.value ->> '$.outcome' = 0)
DELETE FROM "main"."outbox"
WHERE +status = 1 AND (seq, owner_token) IN (SELECT s.value, g.owner FROM g, json_each(g.seqs) AS s)
  AND NOT EXISTS (SELECT 1 FROM "main"."outbox_kept" AS k WHERE k.message_id = "outbox".message_id);

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value ->> '$.outcome' AS outcome, e.value ->> '$.delay_ms' AS delay_ms,
           e.value ->> '$.error' AS error, e.value -> '$.seqs' AS seqs,
           ?1 ->> '$.worker' AS worker, ?1 ->> '$.backoff_ms' AS backoff, ?1 ->> '$.backoff_max_ms' AS backoff_cap,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment
    FROM json_each(?1, '$.groups') AS e)
UPDATE "main"."outbox"
SET status = CASE w.outcome WHEN 0 THEN 2 WHEN 3 THEN 3 ELSE 0 END,
    owner_token = NULL,
    locked_until = NULL,
    retry_count = retry_count + CASE w.outcome WHEN 1 THEN 1 ELSE 0 END,
    next_attempt_at = CASE
        WHEN w.outcome NOT IN (1, 2) THEN next_attempt_at
        ELSE w.moment + coalesce(w.delay_ms,
            CASE w.outcome WHEN 1 THEN min(w.backoff_cap, w.backoff * (1 << min(retry_count, 30))) ELSE 0 END) END,
    last_error = coalesce(w.error, last_error),
    processed_at = CASE WHEN w.outcome IN (0, 3) THEN w.moment END,
    processed_by = CASE WHEN w.outcome IN (0, 3) THEN w.worker END
FROM (SELECT s.value AS seq, g.owner, g.outcome, g.delay_ms, g.error, g.worker, g.backoff, g.backoff_cap, g.moment
      FROM g, json_each(g.seqs) AS s) AS w
WHERE "outbox".seq = w.seq AND +"outbox".status = 1 AND "outbox".owner_token = w.owner;

-- The rest is for an outbox with joins, and a step that is not counted yet.
SELECT EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = 'table' AND '"' || replace(m.name, '"', '""') || '"' = '"outbox_join"' COLLATE NOCASE);

SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s
               INNER JOIN "main"."outbox" AS o ON o.seq = s.value
               INNER JOIN "main"."outbox_join_member" AS m ON m.message_id = o.message_id
               WHERE +o.status >= 2 AND m.status = 0 AND m.ends_by = 0);

WITH ended AS MATERIALIZED (
    SELECT DISTINCT o.message_id, o.status - 1 AS status
    FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s INNER JOIN "main"."outbox" AS o ON o.seq = s.value
    WHERE +o.status >= 2)
UPDATE "main"."outbox_join" AS j
SET completed_steps = completed_steps + d.done, failed_steps = failed_steps + d.dead, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM (SELECT m.join_id, sum(e.status = 1) AS done, sum(e.status = 2) AS dead
      FROM ended AS e CROSS JOIN "main"."outbox_join_member" AS m ON m.message_id = e.message_id
      WHERE m.status = 0 AND m.ends_by = 0
      GROUP BY m.join_id) AS d
WHERE j.join_id = d.join_id AND j.status = 0;

WITH ended AS MATERIALIZED (
    SELECT DISTINCT o.message_id, o.status - 1 AS status
    FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s INNER JOIN "main"."outbox" AS o ON o.seq = s.value
    WHERE +o.status >= 2)
UPDATE "main"."outbox_join_member"
SET status = e.status
FROM ended AS e
WHERE "outbox_join_member".message_id = e.message_id AND "outbox_join_member".status = 0 AND "outbox_join_member".ends_by = 0;

UPDATE "main"."outbox_join"
SET status = verdict, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0 AND verdict <> 0
RETURNING 0, join_id,
    (SELECT o.topic FROM "outbox_join_wait" AS w INNER JOIN "outbox" AS o ON o.message_id = w.message_id WHERE w.join_id = "outbox_join".join_id),
    status, expected_steps, completed_steps, failed_steps;
