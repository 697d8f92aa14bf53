-- One DROP statement a row for everything in the schema @p1, in an order that respects what depends on what:
-- foreign keys, views, procedures, functions, tables, types.
-- The schema itself comes last, by the caller.
SELECT dropping.Statement
FROM (
    SELECT 1 AS Step, N'ALTER TABLE ' + QUOTENAME(s.name) + N'.' + QUOTENAME(t.name)
        + N' DROP CONSTRAINT ' + QUOTENAME(k.name) AS Statement
    FROM sys.foreign_keys k
    JOIN sys.tables t ON t.object_id = k.parent_object_id
    JOIN sys.schemas s ON s.schema_id = t.schema_id
    WHERE s.name = @p1
    UNION ALL
    SELECT CASE o.type WHEN 'V' THEN 2 WHEN 'P' THEN 3 WHEN 'U' THEN 5 ELSE 4 END,
        N'DROP ' + CASE o.type WHEN 'V' THEN N'VIEW' WHEN 'P' THEN N'PROCEDURE' WHEN 'U' THEN N'TABLE'
        ELSE N'FUNCTION' END
        + N' ' + QUOTENAME(s.name) + N'.' + QUOTENAME(o.name)
    FROM sys.objects o
    JOIN sys.schemas s ON s.schema_id = o.schema_id
    WHERE s.name = @p1 AND o.type IN ('V', 'P', 'U', 'FN', 'IF', 'TF')
    UNION ALL
    SELECT 7, N'DROP TYPE ' + QUOTENAME(s.name) + N'.' + QUOTENAME(y.name)
    FROM sys.types y
    JOIN sys.schemas s ON s.schema_id = y.schema_id
    WHERE s.name = @p1 AND y.is_user_defined = 1
) AS dropping
ORDER BY dropping.Step
