-- One sentence a row for each object that should be there and is not, and for a server that is too old.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (VALUES
    ('type',     '"public"."outbox_time"'),
    ('table',    '"public"."outbox"'),
    ('table',    '"public"."outbox_state"'),
    ('table',    '"public"."outbox_lease"'),
    ('table',    '"public"."outbox_attempt"'),
    ('table',    '"public"."outbox_worker"'),
    ('table',    '"public"."outbox_log"'),
    ('table',    '"public"."outbox_log_pending"'),
    ('table',    '"public"."outbox_log_counter"'),
    ('table',    '"public"."outbox_log_group"'),
    ('table',    '"public"."outbox_log_dead"'),
    ('index',    '"public"."outbox_log_topic"'),
    ('index',    '"public"."outbox_log_message"'),
    ('index',    '"public"."outbox_log_pending_message"'),
    ('index',    '"public"."outbox_log_dead_position"'),
    ('index',    '"public"."outbox_log_dead_requeued"'),
    ('index',    '"public"."outbox_pk"'),
    ('index',    '"public"."outbox_message_id"'),
    ('index',    '"public"."outbox_ready"'),
    ('index',    '"public"."outbox_state_pk"'),
    ('index',    '"public"."outbox_dead"'),
    ('index',    '"public"."outbox_lease_pk"'),
    ('index',    '"public"."outbox_leased"'),
    ('index',    '"public"."outbox_attempt_pk"'),
    ('index',    '"public"."outbox_worker_pk"'),
    ('index',    '"public"."outbox_worker_name"'),
    ('view',     '"public"."outbox_view"'),
    ('view',     '"public"."outbox_kept"'),
    ('function', '"public"."outbox_claim"(json)'),
    ('function', '"public"."outbox_settle"(json)'),
    ('function', '"public"."outbox_renew"(json)'),
    ('function', '"public"."outbox_reap"(json)'),
    ('function', '"public"."outbox_give_back"(integer,bigint[])'),
    ('function', '"public"."outbox_worker_number"(text)'),
    ('function', '"public"."outbox_requeue"(json)'),
    ('function', '"public"."outbox_purge"(json)'),
    ('function', '"public"."outbox_topics"(json)'),
    ('function', '"public"."outbox_failed"(json)'),
    ('function', '"public"."outbox_get"(json)'),
    ('function', '"public"."outbox_join_start"(json)'),
    ('function', '"public"."outbox_join_attach"(json)'),
    ('function', '"public"."outbox_join_report"(json)'),
    ('function', '"public"."outbox_join_seal"(json)'),
    ('function', '"public"."outbox_join_cancel"(json)'),
    ('function', '"public"."outbox_join_wait"(json)'),
    ('function', '"public"."outbox_join_list"(json)'),
    ('function', '"public"."outbox_join_members"(json)'),
    ('function', '"public"."outbox_join_purge"(json)'),
    ('function', '"public"."outbox_join_count"(uuid[],uuid[])'),
    ('function', '"public"."outbox_join_advance"(uuid[],int[],int[])'),
    ('function', '"public"."outbox_entry_add"(json)'),
    ('function', '"public"."outbox_entry_get"(json)'),
    ('function', '"public"."outbox_entry_save"(json,bytea)'),
    ('function', '"public"."outbox_entry_purge"(json)'),
    ('function', '"public"."outbox_log_enqueue"(json,bytea)'),
    ('function', '"public"."outbox_log_stamp"(json)'),
    ('function', '"public"."outbox_log_lease"(json)'),
    ('function', '"public"."outbox_log_read"(json)'),
    ('function', '"public"."outbox_log_purge"(json)'),
    ('function', '"public"."outbox_log_forget"(json)'),
    ('function', '"public"."outbox_log_dead_add"(json)'),
    ('function', '"public"."outbox_log_dead_list"(json)'),
    ('function', '"public"."outbox_log_dead_requeue"(json)'),
    ('function', '"public"."outbox_log_dead_discard"(json)'),
    ('function', '"public"."outbox_ack"(uuid,json)'),
    ('function', '"public"."outbox_abandon"(uuid,json,text)'),
    ('function', '"public"."outbox_fail"(uuid,json,text)')) AS w(kind, name)
WHERE CASE w.kind WHEN 'function' THEN to_regprocedure(w.name) IS NULL WHEN 'type' THEN to_regtype(w.name) IS NULL ELSE to_regclass(w.name) IS NULL END
UNION ALL
SELECT 'column ' || c.name || ' of the table ' || c.of || ' is missing'
FROM (SELECT '"public"."outbox"' AS of, unnest(ARRAY['seq', 'message_id', 'uuid', 'topic', 'topic_key', 'payload', 'headers', 'correlation_id',
                                                    'stream_key', 'created_at', 'due_at']) AS name
      UNION ALL
      SELECT '"public"."outbox_state"', unnest(ARRAY['seq', 'topic_key', 'next_attempt_at', 'processed_at', 'owner_token', 'size', 'retry_count',
                                                     'worker_id', 'status', 'flags'])) AS c
WHERE to_regclass(c.of) IS NOT NULL
  AND NOT EXISTS (SELECT FROM pg_attribute AS a
                  WHERE a.attrelid = to_regclass(c.of) AND a.attname = c.name AND NOT a.attisdropped)
UNION ALL
SELECT 'the table "public"."outbox" is of an earlier layout, with contents and states in one, and cannot be carried over: have its messages handled, drop its tables and migrate, or install under another Table'
FROM pg_attribute AS a
WHERE a.attrelid = to_regclass('"public"."outbox"') AND a.attname = 'locked_until' AND NOT a.attisdropped
UNION ALL
SELECT 'PostgreSQL ' || current_setting('server_version') || ' is older than 14'
WHERE current_setting('server_version_num')::int < 140000;
