-- Extends the leases of held messages from now, by the database's clock, and answers with the receipts it refused. None is
-- held and yet not renewed, as where rows can be locked.
-- The groups are taken apart first: else their JSON would be read again for each message. The + keeps the planner from the
-- index of leases: the rows are to be found by their keys.
WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
SELECT s.value AS seq, g.owner, 0
FROM g, json_each(g.seqs) AS s
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.owner);

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
UPDATE "main"."outbox"
SET locked_until = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms')
WHERE +status = 1 AND (seq, owner_token) IN (SELECT s.value, g.owner FROM g, json_each(g.seqs) AS s);
