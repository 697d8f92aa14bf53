-- Ends or returns held messages of any number of claims in one transaction, counts the steps that have ended in their
-- joins, and answers with the receipts it refused and, under seq 0, with the joins that have ended.
-- Held means in progress with the same owner token; an expired lease that nobody took is still held.
-- Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3 fail.
-- There are no locked rows to pass over: who writes has the whole database.
-- The groups are taken apart first: else their JSON would be read again for each message. Rows are found
-- by their keys whatever statistics say: by subqueries of one table and its key, by INDEXED BY, and by upserts, which insert
-- nothing (outbox_claim says why).
WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
SELECT s.value AS seq, g.owner, NULL, NULL, NULL, NULL, NULL
FROM g, json_each(g.seqs) AS s
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.owner);

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e
    WHERE ?1 ->> '$.delete_acked' AND e.value ->> '$.outcome' = 0)
DELETE FROM "main"."outbox" INDEXED BY "outbox_message_id"
WHERE message_id IN (SELECT (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.owner)
                     FROM g, json_each(g.seqs) AS s)
  AND NOT EXISTS (SELECT 1 FROM "main"."outbox_kept" AS k WHERE k.message_id = "outbox".message_id);

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value ->> '$.outcome' AS outcome, e.value ->> '$.delay_ms' AS delay_ms,
           e.value ->> '$.error' AS error, e.value -> '$.seqs' AS seqs,
           ?1 ->> '$.worker' AS worker, ?1 ->> '$.backoff_ms' AS backoff, ?1 ->> '$.backoff_max_ms' AS backoff_cap,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment
    FROM json_each(?1, '$.groups') AS e),
held AS MATERIALIZED (
    SELECT s.value AS seq, g.outcome, g.delay_ms, g.error, g.worker, g.backoff, g.backoff_cap, g.moment,
           (SELECT o.retry_count FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.owner) AS retry_count
    FROM g, json_each(g.seqs) AS s)
INSERT INTO "main"."outbox"
    (seq, message_id, uuid, topic, payload, created_at, status, retry_count, next_attempt_at, last_error, processed_at, processed_by)
SELECT h.seq, '', '', '', x'', 0, CASE h.outcome WHEN 0 THEN 2 WHEN 3 THEN 3 ELSE 0 END,
       h.retry_count + (h.outcome = 1),
       h.moment + coalesce(h.delay_ms, CASE h.outcome WHEN 1 THEN min(h.backoff_cap, h.backoff * (1 << min(h.retry_count, 30))) ELSE 0 END),
       h.error, CASE WHEN h.outcome IN (0, 3) THEN h.moment END, CASE WHEN h.outcome IN (0, 3) THEN h.worker END
FROM held AS h
WHERE h.retry_count IS NOT NULL
ON CONFLICT (seq) DO UPDATE
SET status = excluded.status, owner_token = NULL, locked_until = NULL, retry_count = excluded.retry_count,
    next_attempt_at = CASE excluded.status WHEN 0 THEN excluded.next_attempt_at ELSE next_attempt_at END,
    last_error = coalesce(excluded.last_error, last_error), processed_at = excluded.processed_at, processed_by = excluded.processed_by;

-- The rest is for an outbox with joins, and a step that is not counted yet.
SELECT EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = 'table' AND '"' || replace(m.name, '"', '""') || '"' = '"outbox_join"' COLLATE NOCASE);

SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s
               CROSS JOIN "main"."outbox_join_member" AS m INDEXED BY "outbox_join_member_message"
                       ON m.message_id = (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status >= 2)
               WHERE m.status = 0 AND m.ends_by = 0);

WITH ended AS MATERIALIZED (
    SELECT DISTINCT (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status >= 2) AS message_id,
           (SELECT o.status - 1 FROM "main"."outbox" AS o WHERE o.seq = s.value) AS status
    FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s)
INSERT INTO "main"."outbox_join" (join_id, created_at, completed_steps, failed_steps, last_updated_at)
SELECT d.join_id, 0, d.done, d.dead, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM (SELECT m.join_id, sum(e.status = 1) AS done, sum(e.status = 2) AS dead
      FROM ended AS e CROSS JOIN "main"."outbox_join_member" AS m INDEXED BY "outbox_join_member_message" ON m.message_id = e.message_id
      WHERE m.status = 0 AND m.ends_by = 0
      GROUP BY m.join_id) AS d
WHERE (SELECT j.status FROM "main"."outbox_join" AS j WHERE j.join_id = d.join_id) = 0
ON CONFLICT (join_id) DO UPDATE
SET completed_steps = completed_steps + excluded.completed_steps, failed_steps = failed_steps + excluded.failed_steps,
    last_updated_at = excluded.last_updated_at;

WITH ended AS MATERIALIZED (
    SELECT DISTINCT (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status >= 2) AS message_id,
           (SELECT o.status - 1 FROM "main"."outbox" AS o WHERE o.seq = s.value) AS status
    FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s)
INSERT INTO "main"."outbox_join_member" (join_id, message_id, status, created_at)
SELECT m.join_id, m.message_id, e.status, 0
FROM ended AS e CROSS JOIN "main"."outbox_join_member" AS m INDEXED BY "outbox_join_member_message" ON m.message_id = e.message_id
WHERE m.status = 0 AND m.ends_by = 0
ON CONFLICT (join_id, message_id) DO UPDATE SET status = excluded.status;

UPDATE "main"."outbox_join" INDEXED BY "outbox_join_decided"
SET status = verdict, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0 AND verdict <> 0
RETURNING 0, join_id,
    (SELECT o.topic FROM "outbox_join_wait" AS w CROSS JOIN "outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = w.message_id
     WHERE w.join_id = "outbox_join".join_id),
    status, expected_steps, completed_steps, failed_steps;
