-- Deletes up to limit records of what operators did that are older than older_than_ms; returns how many. Numbers grow with
-- time, so the oldest come first.
DELETE FROM "main"."outbox_audit"
WHERE audit_no <= (SELECT max(f.audit_no)
                   FROM (SELECT a.audit_no, a.happened_at FROM "main"."outbox_audit" AS a ORDER BY a.audit_no LIMIT (?1 ->> '$.limit')) AS f
                   WHERE f.happened_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.older_than_ms'));

SELECT changes();
