-- One sentence per row for each missing object of the inbox.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (SELECT 'table' AS kind, '"outbox_entry"' AS name
      UNION ALL SELECT 'index', '"outbox_entry_last_seen"'
      UNION ALL SELECT 'view', '"outbox_entry_view"'
      UNION ALL SELECT 'trigger', '"outbox_entry_gone"') AS w
WHERE NOT EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = w.kind AND '"' || replace(m.name, '"', '""') || '"' = w.name COLLATE NOCASE);
