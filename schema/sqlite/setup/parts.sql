-- The optional parts that this outbox has.
SELECT p.name
FROM (SELECT 'joins' AS name, '"outbox_join"' AS relation
      UNION ALL SELECT 'inbox', '"outbox_entry"') AS p
WHERE EXISTS (SELECT 1 FROM "main".sqlite_master AS m
              WHERE m.type = 'table' AND '"' || replace(m.name, '"', '""') || '"' = p.relation COLLATE NOCASE);
