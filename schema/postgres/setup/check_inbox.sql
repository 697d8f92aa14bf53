-- One sentence per row for each missing object of the inbox.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (VALUES
    ('table', '"public"."outbox_entry"'),
    ('index', '"public"."outbox_entry_pk"'),
    ('index', '"public"."outbox_entry_key"'),
    ('index', '"public"."outbox_entry_last_seen"'),
    ('view',  '"public"."outbox_entry_view"')) AS w(kind, name)
WHERE to_regclass(w.name) IS NULL;
