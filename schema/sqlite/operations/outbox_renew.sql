-- Extends the leases of held messages from now, by the database's clock, and answers with the receipts it refused. None is
-- held and yet not renewed, as where rows can be locked.
-- The groups are taken apart first: else their JSON would be read again for each message. Nothing is
-- inserted, as outbox_claim says.
WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
SELECT s.value AS seq, g.owner, 0
FROM g, json_each(g.seqs) AS s
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1 AND o.owner_token = g.owner);

WITH g AS MATERIALIZED (
    SELECT e.value ->> '$.owner' AS owner, e.value -> '$.seqs' AS seqs FROM json_each(?1, '$.groups') AS e)
INSERT INTO "main"."outbox" (seq, message_id, uuid, topic, payload, created_at, next_attempt_at, status, owner_token, locked_until)
SELECT s.value, '', '', '', x'', 0, 0, 1, g.owner, (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms'))
FROM g, json_each(g.seqs) AS s
WHERE (SELECT o.owner_token FROM "main"."outbox" AS o WHERE o.seq = s.value AND o.status = 1) = g.owner
ON CONFLICT (seq) DO UPDATE SET locked_until = excluded.locked_until;
