-- Ends or returns held messages of any number of claims in one transaction, counts ended steps in their joins, and returns
-- the receipts it refused and, under seq 0, the joins that have ended. Held means in progress with the same owner token; an
-- expired lease that nobody took is still held. Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3
-- fail. stages are bits to add to those of a message. The error of an attempt goes into outbox_attempt; a release records
-- one only if it is new. With delete_acked, the state of an acknowledged message is deleted (by a trigger), unless something
-- depends on it; the contents are left for purging. Leases that the caller says are over end here; others when they expire.
-- Returned messages go back to the queues of their streams, and finished runs free them; claims that hold no stream skip
-- that step. With skip_failed, a failed message does not block its stream. There are no locked rows to skip: a writer has
-- the whole database. The groups are unpacked first, because otherwise their JSON would be parsed again for each message.
-- Rows are found by their keys, whatever the statistics say: by subqueries on one table and its key, by INDEXED BY, and by
-- upserts that insert no state (see outbox_claim).
WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
SELECT i.value AS seq, g.owner, NULL, NULL, NULL, NULL, NULL
FROM g, json_each(g.seqs) AS i
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = g.owner);

INSERT OR IGNORE INTO "main"."outbox_worker" (name, started_at)
VALUES (?1 ->> '$.worker', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value ->> '$.outcome' AS outcome, e.value ->> '$.error' AS error, e.value -> '$.seqs' AS seqs,
           (SELECT w.worker_id FROM "main"."outbox_worker" AS w WHERE w.name = ?1 ->> '$.worker') AS worker,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment
    FROM json_each(?1, '$.groups') AS e
    WHERE e.value ->> '$.outcome' IN (1, 3) OR e.value ->> '$.error' IS NOT NULL),
held AS MATERIALIZED (
    SELECT i.value AS seq, g.outcome, g.error, g.worker, g.moment,
           (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = g.owner) AS retry_count,
           (SELECT max(a.attempt_id) FROM "main"."outbox_attempt" AS a WHERE a.seq = i.value) AS last
    FROM g, json_each(g.seqs) AS i)
INSERT INTO "main"."outbox_attempt" (seq, attempt_id, happened_at, worker_id, attempt, outcome, error)
SELECT h.seq, coalesce(h.last, 0) + 1, h.moment, h.worker, h.retry_count + 1, h.outcome, h.error
FROM held AS h
WHERE h.retry_count IS NOT NULL
  AND (h.outcome IN (1, 3)
       OR h.error IS NOT (SELECT a.error FROM "main"."outbox_attempt" AS a WHERE a.seq = h.seq AND a.attempt_id = h.last))
ON CONFLICT (seq, attempt_id) DO NOTHING;

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e
    WHERE ?1 ->> '$.delete_acked' AND e.value ->> '$.outcome' = 0)
INSERT INTO "main"."outbox_acked" (seq)
SELECT i.value FROM g, json_each(g.seqs) AS i
WHERE (SELECT s.flags = 0 FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = g.owner)
ON CONFLICT (seq) DO NOTHING;

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value ->> '$.outcome' AS outcome, e.value ->> '$.delay_ms' AS delay_ms,
           e.value -> '$.seqs' AS seqs, e.value ->> '$.stages' AS stages, ?1 ->> '$.backoff_ms' AS backoff, ?1 ->> '$.backoff_max_ms' AS backoff_cap,
           ?1 ->> '$.skip_failed' AS skip_failed,
           (SELECT w.worker_id FROM "main"."outbox_worker" AS w WHERE w.name = ?1 ->> '$.worker') AS worker,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment
    FROM json_each(?1, '$.groups') AS e),
held AS MATERIALIZED (
    SELECT i.value AS seq, g.outcome, g.delay_ms, g.stages, g.backoff, g.backoff_cap, g.skip_failed, g.worker, g.moment,
           (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = g.owner) AS retry_count
    FROM g, json_each(g.seqs) AS i)
INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at, processed_at, retry_count, worker_id, status, flags, stages)
SELECT h.seq, 0,
       h.moment + coalesce(h.delay_ms, CASE h.outcome WHEN 1 THEN min(h.backoff_cap, h.backoff * (1 << min(h.retry_count, 30))) ELSE 0 END),
       CASE WHEN h.outcome IN (0, 3) THEN h.moment END, h.retry_count + (h.outcome = 1), CASE WHEN h.outcome IN (0, 3) THEN h.worker END,
       CASE h.outcome WHEN 0 THEN 2 WHEN 3 THEN 3 ELSE 0 END, CASE WHEN h.outcome = 3 AND h.skip_failed THEN 4 ELSE 0 END, h.stages
FROM held AS h
WHERE h.retry_count IS NOT NULL
ON CONFLICT (seq) DO UPDATE
SET status = CASE WHEN excluded.status = 0 AND stream_id IS NOT NULL THEN 5 ELSE excluded.status END,
    flags = CASE WHEN stream_id IS NULL THEN flags ELSE flags | excluded.flags END,
    owner_token = NULL, retry_count = excluded.retry_count,
    next_attempt_at = CASE excluded.status WHEN 0 THEN excluded.next_attempt_at ELSE next_attempt_at END,
    processed_at = excluded.processed_at, worker_id = excluded.worker_id,
    stages = CASE WHEN excluded.stages IS NULL THEN stages ELSE coalesce(stages, 0) | excluded.stages END;

INSERT INTO "main"."outbox_free" (stream_id)
SELECT DISTINCT (SELECT o.stream_id FROM "main"."outbox" AS o WHERE o.seq = i.value)
FROM json_each(?1, '$.groups') AS g
CROSS JOIN (SELECT 1) AS c ON (SELECT l.streams FROM "main"."outbox_lease" AS l WHERE l.owner_token = g.value ->> '$.owner') IS NOT NULL
CROSS JOIN json_each(g.value, '$.seqs') AS i;

DELETE FROM "main"."outbox_lease" WHERE owner_token IN (SELECT e.value FROM json_each(?1, '$.over') AS e);

-- The rest is for steps of joins, which have flag 1: ordinary messages need no lookup.
SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS i
               WHERE (SELECT s.flags & 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.status IN (2, 3)));

WITH ended AS MATERIALIZED (
    SELECT DISTINCT (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = i.value) AS message_id,
           (SELECT s.status - 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value) AS status
    FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS i
    WHERE (SELECT s.flags & 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.status IN (2, 3)))
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
    SELECT DISTINCT (SELECT o.message_id FROM "main"."outbox" AS o WHERE o.seq = i.value) AS message_id,
           (SELECT s.status - 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value) AS status
    FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS i
    WHERE (SELECT s.flags & 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.status IN (2, 3)))
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
