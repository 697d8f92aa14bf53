SELECT CONCAT(o.name, ' ', m.definition)
FROM sys.sql_modules AS m
JOIN sys.objects AS o ON o.object_id = m.object_id
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = N'{schema}'
ORDER BY 1;
