-- One sentence a row for each object that should be there and is not, and for settings that do not fit.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (SELECT 'table' AS kind, '"outbox"' AS name
      UNION ALL SELECT 'table', '"outbox_log"'
      UNION ALL SELECT 'table', '"outbox_log_pending"'
      UNION ALL SELECT 'table', '"outbox_log_counter"'
      UNION ALL SELECT 'table', '"outbox_log_group"'
      UNION ALL SELECT 'table', '"outbox_log_dead"'
      UNION ALL SELECT 'index', '"outbox_log_topic"'
      UNION ALL SELECT 'index', '"outbox_log_message"'
      UNION ALL SELECT 'index', '"outbox_log_pending_message"'
      UNION ALL SELECT 'index', '"outbox_log_dead_position"'
      UNION ALL SELECT 'index', '"outbox_log_dead_requeued"'
      UNION ALL SELECT 'index', '"outbox_ready"'
      UNION ALL SELECT 'index', '"outbox_leased"'
      UNION ALL SELECT 'index', '"outbox_ended"'
      UNION ALL SELECT 'view', '"outbox_view"'
      UNION ALL SELECT 'view', '"outbox_kept"') AS w
WHERE NOT EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = w.kind AND '"' || replace(m.name, '"', '""') || '"' = w.name COLLATE NOCASE)
UNION ALL
SELECT 'column ' || c.value || ' of the table is missing'
FROM json_each('["seq", "message_id", "uuid", "topic", "payload", "headers", "correlation_id", "stream_key", "created_at",
                 "due_at", "next_attempt_at", "status", "locked_until", "owner_token", "retry_count", "last_error",
                 "processed_at", "processed_by"]') AS c
WHERE EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = 'table' AND '"' || replace(m.name, '"', '""') || '"' = '"outbox"' COLLATE NOCASE)
  AND c.value NOT IN (SELECT i.name FROM "main".sqlite_master AS m, pragma_table_info(m.name) AS i
                      WHERE '"' || replace(m.name, '"', '""') || '"' = '"outbox"' COLLATE NOCASE)
UNION ALL
SELECT 'journal_mode is ' || j.journal_mode || ': open the database with _pragma=journal_mode(WAL), or readers and the writer block each other'
FROM pragma_journal_mode AS j WHERE j.journal_mode NOT IN ('wal', 'memory')
UNION ALL
SELECT 'busy_timeout is 0: open the database with _pragma=busy_timeout(10000), or writers fail instead of waiting'
FROM pragma_busy_timeout AS b WHERE b.timeout = 0;
