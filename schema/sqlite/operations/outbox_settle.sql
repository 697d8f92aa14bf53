-- Ends or returns held messages of any number of claims in one transaction, and answers with the receipts it refused.
-- Held means in progress with the same owner token; an expired lease that nobody took is still held.
-- Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3 fail.
-- The groups are taken apart first: else their JSON would be read again for each message.
WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
SELECT s.value AS seq, g.owner
FROM g, json_each(g.seqs) AS s
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.owner);

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e
    WHERE ?1 ->> '$.delete_acked' AND e.value ->> '$.outcome' = 0)
DELETE FROM "main"."outbox"
WHERE status = 1 AND (seq, owner_token) IN (SELECT s.value, g.owner FROM g, json_each(g.seqs) AS s);

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
WHERE "outbox".seq = w.seq AND "outbox".status = 1 AND "outbox".owner_token = w.owner;
