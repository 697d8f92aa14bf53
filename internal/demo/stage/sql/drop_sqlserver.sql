-- One DROP statement a row for all whose name begins with @p1: views, then procedures, then foreign keys, then tables.
SELECT dropping.Statement
FROM (
    SELECT CASE o.type WHEN 'V' THEN 1 WHEN 'P' THEN 2 ELSE 4 END AS Step,
           N'DROP ' + CASE o.type WHEN 'V' THEN N'VIEW ' WHEN 'P' THEN N'PROCEDURE ' ELSE N'TABLE ' END
           + QUOTENAME(s.name) + N'.' + QUOTENAME(o.name) AS Statement
    FROM sys.objects AS o
    JOIN sys.schemas AS s ON s.schema_id = o.schema_id
    WHERE o.type IN ('V', 'P', 'U') AND LEFT(o.name, LEN(@p1)) = @p1
    UNION ALL
    SELECT 3, N'ALTER TABLE ' + QUOTENAME(s.name) + N'.' + QUOTENAME(t.name) + N' DROP CONSTRAINT ' + QUOTENAME(k.name)
    FROM sys.foreign_keys AS k
    JOIN sys.tables AS t ON t.object_id = k.parent_object_id
    JOIN sys.schemas AS s ON s.schema_id = t.schema_id
    WHERE LEFT(t.name, LEN(@p1)) = @p1
) AS dropping
ORDER BY dropping.Step;
