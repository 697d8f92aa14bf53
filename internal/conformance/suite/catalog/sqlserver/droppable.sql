-- The kind and the name of all that is in the schema @p1, what depends on others before them.
SELECT CASE o.type WHEN 'V' THEN N'VIEW' WHEN 'P' THEN N'PROCEDURE' ELSE N'TABLE' END, o.name
FROM sys.objects AS o
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = @p1 AND o.type IN ('V', 'P', 'U')
ORDER BY CASE o.type WHEN 'V' THEN 1 WHEN 'P' THEN 2 ELSE 3 END, o.object_id DESC;
