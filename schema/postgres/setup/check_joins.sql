-- One sentence per row for each missing object of joins.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (VALUES
    ('table', '"public"."outbox_join"'),
    ('index', '"public"."outbox_join_pk"'),
    ('index', '"public"."outbox_join_group"'),
    ('index', '"public"."outbox_join_pending"'),
    ('index', '"public"."outbox_join_ended"'),
    ('table', '"public"."outbox_join_member"'),
    ('index', '"public"."outbox_join_member_pk"'),
    ('index', '"public"."outbox_join_member_message"'),
    ('table', '"public"."outbox_join_size"'),
    ('table', '"public"."outbox_join_wait"')) AS w(kind, name)
WHERE to_regclass(w.name) IS NULL;
