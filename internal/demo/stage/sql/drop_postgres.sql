-- One DROP statement a row for all whose name begins with $1: views, then functions, then tables.
-- Tables refer to each other: CASCADE drops those constraints, and nothing else is left that depends on them.
SELECT dropping.statement
FROM (
    SELECT CASE relkind WHEN 'v' THEN 1 ELSE 3 END AS step,
           CASE relkind WHEN 'v' THEN 'DROP VIEW ' || oid::regclass ELSE 'DROP TABLE ' || oid::regclass || ' CASCADE' END AS statement
    FROM pg_class
    WHERE relkind IN ('v', 'r') AND starts_with(relname, $1)
    UNION ALL
    SELECT 2, 'DROP FUNCTION ' || oid::regprocedure
    FROM pg_proc
    WHERE starts_with(proname, $1)
) AS dropping
ORDER BY dropping.step;
