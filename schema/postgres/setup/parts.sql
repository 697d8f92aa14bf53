-- The optional parts that this outbox has.
SELECT p.name
FROM (VALUES ('joins', '"public"."outbox_join"'), ('inbox', '"public"."outbox_entry"')) AS p(name, relation)
WHERE to_regclass(p.relation) IS NOT NULL;
