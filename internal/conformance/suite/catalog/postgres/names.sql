SELECT o.name
FROM (
    SELECT 'table' AS kind, tablename AS name FROM pg_tables WHERE schemaname = '{schema}'
    UNION ALL
    SELECT 'index', indexname FROM pg_indexes WHERE schemaname = '{schema}'
    UNION ALL
    SELECT 'view', viewname FROM pg_views WHERE schemaname = '{schema}'
    UNION ALL
    SELECT 'procedure', proname FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace) AS o
WHERE o.kind = '{kind}';
