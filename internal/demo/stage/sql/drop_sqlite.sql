-- One DROP statement a row for all whose name begins with $1: views, then tables. Indexes go with their tables.
SELECT 'DROP ' || type || ' "' || name || '"'
FROM sqlite_master
WHERE type IN ('view', 'table') AND substr(name, 1, length($1)) = $1
ORDER BY type DESC;
