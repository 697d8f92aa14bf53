SELECT CONCAT(o.name, ' ', i.name, ' ', i.type_desc, ' ', i.is_unique, ' ', i.filter_definition)
FROM sys.indexes AS i
JOIN sys.objects AS o ON o.object_id = i.object_id
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = N'{schema}'
ORDER BY 1;
