SELECT CONCAT(o.name, ' ', o.type_desc)
FROM sys.objects AS o
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = N'{schema}'
ORDER BY 1;
