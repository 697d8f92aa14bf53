-- Records what an operator has done, in the same transaction. The first batch of an act gets a number; the others pass it and
-- add to the count.
INSERT INTO "main"."outbox_audit" (audit_no, happened_at, actor, act, selection, affected)
SELECT ?1 ->> '$.no', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), ?1 ->> '$.by', ?1 ->> '$.act', ?1 ->> '$.selection', ?1 ->> '$.affected'
WHERE ?1 ->> '$.act' IS NOT NULL
ON CONFLICT (audit_no) DO UPDATE SET affected = affected + excluded.affected;

SELECT coalesce(?1 ->> '$.no', last_insert_rowid());
