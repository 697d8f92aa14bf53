-- Lists what operators have done, the latest first: up to limit before a number.
SELECT a.audit_no, a.happened_at, a.actor, a.act, a.selection, a.affected
FROM "main"."outbox_audit" AS a
WHERE a.audit_no < coalesce(?1 ->> '$.before', 9223372036854775807)
ORDER BY a.audit_no DESC
LIMIT (?1 ->> '$.limit');
