-- One sentence per row for each missing object of joins.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (SELECT 'table' AS kind, '"outbox_join"' AS name
      UNION ALL SELECT 'index', '"outbox_join_group"'
      UNION ALL SELECT 'index', '"outbox_join_pending"'
      UNION ALL SELECT 'index', '"outbox_join_ended"'
      UNION ALL SELECT 'index', '"outbox_join_decided"'
      UNION ALL SELECT 'trigger', '"outbox_join_wake"'
      UNION ALL SELECT 'trigger', '"outbox_join_gone"'
      UNION ALL SELECT 'table', '"outbox_join_member"'
      UNION ALL SELECT 'index', '"outbox_join_member_message"'
      UNION ALL SELECT 'table', '"outbox_join_size"'
      UNION ALL SELECT 'table', '"outbox_join_wait"') AS w
WHERE NOT EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = w.kind AND '"' || replace(m.name, '"', '""') || '"' = w.name COLLATE NOCASE);
