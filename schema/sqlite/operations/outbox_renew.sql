-- Extends leases from now, by the database's clock: one row per claim. Returns the receipts whose leases it did not extend:
-- refused, or held without a lease. The groups are unpacked first, because otherwise their JSON would be parsed again for
-- each message.
WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e),
receipts AS MATERIALIZED (
    SELECT i.value AS seq, g.owner,
           EXISTS (SELECT 1 FROM "main"."outbox_lease" AS l WHERE l.owner_token = g.owner) AS extended,
           EXISTS (SELECT 1 FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = g.owner) AS held
    FROM g, json_each(g.seqs) AS i)
SELECT r.seq, r.owner, r.held FROM receipts AS r WHERE NOT (r.extended AND r.held);

UPDATE "main"."outbox_lease" SET locked_until = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms')
WHERE owner_token IN (SELECT e.value ->> '$.owner' FROM json_each(?1, '$.groups') AS e);
