-- Extends the leases of held messages from now, by the database's clock, and answers with the receipts it refused.
SELECT s.value AS seq, g.value ->> '$.owner' AS owner_token
FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o
                  WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.value ->> '$.owner');

UPDATE "main"."outbox"
SET locked_until = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms')
WHERE status = 1
  AND (seq, owner_token) IN (SELECT s.value, g.value ->> '$.owner'
                             FROM json_each(?1, '$.groups') AS g, json_each(g.value, '$.seqs') AS s);
