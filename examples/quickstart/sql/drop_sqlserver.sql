-- One DROP statement a row for all whose name begins with $1: views, then procedures, then tables.
SELECT dropping.Statement
FROM (
    SELECT CASE o.type WHEN 'V' THEN 1 WHEN 'P' THEN 2 ELSE 3 END AS Step,
           N'DROP ' + CASE o.type WHEN 'V' THEN N'VIEW ' WHEN 'P' THEN N'PROCEDURE ' ELSE N'TABLE ' END
           + QUOTENAME(s.name) + N'.' + QUOTENAME(o.name) AS Statement
    FROM sys.objects AS o
    JOIN sys.schemas AS s ON s.schema_id = o.schema_id
    WHERE o.type IN ('V', 'P', 'U') AND LEFT(o.name, LEN($1)) = $1
) AS dropping
ORDER BY dropping.Step;
