SELECT x.name
FROM (
    SELECT CASE o.type WHEN 'U' THEN N'table' WHEN 'V' THEN N'view' WHEN 'P' THEN N'procedure' END AS kind, o.name
    FROM sys.objects AS o
    JOIN sys.schemas AS s ON s.schema_id = o.schema_id
    WHERE s.name = N'{schema}'
    UNION ALL
    SELECT N'index', i.name
    FROM sys.indexes AS i
    JOIN sys.objects AS o ON o.object_id = i.object_id
    JOIN sys.schemas AS s ON s.schema_id = o.schema_id
    WHERE s.name = N'{schema}' AND i.name IS NOT NULL) AS x
WHERE x.kind = N'{kind}';
