-- One sentence per row for each missing object, and for unsuitable settings.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (SELECT 'table' AS kind, '"outbox"' AS name
      UNION ALL SELECT 'table', '"outbox_state"'
      UNION ALL SELECT 'table', '"outbox_lease"'
      UNION ALL SELECT 'table', '"outbox_attempt"'
      UNION ALL SELECT 'table', '"outbox_worker"'
      UNION ALL SELECT 'table', '"outbox_acked"'
      UNION ALL SELECT 'table', '"outbox_stream"'
      UNION ALL SELECT 'table', '"outbox_queue"'
      UNION ALL SELECT 'table', '"outbox_requeued"'
      UNION ALL SELECT 'table', '"outbox_log"'
      UNION ALL SELECT 'table', '"outbox_log_pending"'
      UNION ALL SELECT 'table', '"outbox_log_counter"'
      UNION ALL SELECT 'table', '"outbox_log_group"'
      UNION ALL SELECT 'table', '"outbox_log_dead"'
      UNION ALL SELECT 'table', '"outbox_event"'
      UNION ALL SELECT 'table', '"outbox_event_stream"'
      UNION ALL SELECT 'table', '"outbox_event_swept"'
      UNION ALL SELECT 'table', '"outbox_paused"'
      UNION ALL SELECT 'table', '"outbox_audit"'
      UNION ALL SELECT 'table', '"outbox_ended"'
      UNION ALL SELECT 'trigger', '"outbox_ended_gone"'
      UNION ALL SELECT 'index', '"outbox_event_seq"'
      UNION ALL SELECT 'index', '"outbox_event_stream_name"'
      UNION ALL SELECT 'trigger', '"outbox_event_gone"'
      UNION ALL SELECT 'index', '"outbox_log_topic"'
      UNION ALL SELECT 'index', '"outbox_log_message"'
      UNION ALL SELECT 'index', '"outbox_log_pending_message"'
      UNION ALL SELECT 'index', '"outbox_log_dead_position"'
      UNION ALL SELECT 'index', '"outbox_log_dead_requeued"'
      UNION ALL SELECT 'index', '"outbox_message_id"'
      UNION ALL SELECT 'index', '"outbox_ready"'
      UNION ALL SELECT 'index', '"outbox_dead"'
      UNION ALL SELECT 'index', '"outbox_done"'
      UNION ALL SELECT 'index', '"outbox_leased"'
      UNION ALL SELECT 'index', '"outbox_worker_name"'
      UNION ALL SELECT 'index', '"outbox_worker_lives"'
      UNION ALL SELECT 'index', '"outbox_stream_ready"'
      UNION ALL SELECT 'index', '"outbox_stream_blocked"'
      UNION ALL SELECT 'view', '"outbox_free"'
      UNION ALL SELECT 'trigger', '"outbox_free_insert"'
      UNION ALL SELECT 'trigger', '"outbox_lease_gone"'
      UNION ALL SELECT 'trigger', '"outbox_requeued_gone"'
      UNION ALL SELECT 'view', '"outbox_queued"'
      UNION ALL SELECT 'trigger', '"outbox_queued_insert"'
      UNION ALL SELECT 'trigger', '"outbox_ack"'
      UNION ALL SELECT 'trigger', '"outbox_gone"'
      UNION ALL SELECT 'view', '"outbox_view"'
      UNION ALL SELECT 'view', '"outbox_kept"') AS w
WHERE NOT EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = w.kind AND '"' || replace(m.name, '"', '""') || '"' = w.name COLLATE NOCASE)
UNION ALL
SELECT 'column ' || c.value || ' of the table ' || t.name || ' is missing'
FROM (SELECT '"outbox"' AS name, '["seq", "message_id", "uuid", "topic", "topic_key", "payload", "headers", "correlation_id",
                                   "stream_key", "stream_id", "created_at", "due_at"]' AS columns
      UNION ALL
      SELECT '"outbox_state"', '["seq", "topic_key", "stream_id", "next_attempt_at", "processed_at", "owner_token", "size", "retry_count",
                                 "worker_id", "status", "flags", "stages"]'
      UNION ALL
      SELECT '"outbox_worker"', '["worker_id", "name", "started_at", "seen_at", "lives_until", "stopped_at"]') AS t, json_each(t.columns) AS c
WHERE EXISTS (SELECT 1 FROM "main".sqlite_master AS m WHERE m.type = 'table' AND '"' || replace(m.name, '"', '""') || '"' = t.name COLLATE NOCASE)
  AND c.value NOT IN (SELECT i.name FROM "main".sqlite_master AS m, pragma_table_info(m.name) AS i
                      WHERE '"' || replace(m.name, '"', '""') || '"' = t.name COLLATE NOCASE)
UNION ALL
SELECT 'the table "outbox" is of an earlier layout, with contents and states in one, and cannot be carried over: have its messages handled, drop its tables and migrate, or install under another Table'
FROM "main".sqlite_master AS m, pragma_table_info(m.name) AS i
WHERE '"' || replace(m.name, '"', '""') || '"' = '"outbox"' COLLATE NOCASE AND i.name = 'locked_until'
UNION ALL
SELECT 'journal_mode is ' || j.journal_mode || ': open the database with _pragma=journal_mode(WAL), or readers and the writer block each other'
FROM pragma_journal_mode AS j WHERE j.journal_mode <> 'wal' AND (SELECT d.file FROM pragma_database_list AS d WHERE d.name = 'main') <> ''
UNION ALL
SELECT 'busy_timeout is 0: open the database with _pragma=busy_timeout(10000), or writers fail instead of waiting'
FROM pragma_busy_timeout AS b WHERE b.timeout = 0;
