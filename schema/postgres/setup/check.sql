-- One sentence per row for each missing object, and for a server that is too old.
SELECT w.kind || ' ' || w.name || ' is missing'
FROM (VALUES
    ('type',     '"public"."outbox_time"'),
    ('table',    '"public"."outbox"'),
    ('table',    '"public"."outbox_state"'),
    ('table',    '"public"."outbox_lease"'),
    ('table',    '"public"."outbox_attempt"'),
    ('table',    '"public"."outbox_worker"'),
    ('table',    '"public"."outbox_wake"'),
    ('table',    '"public"."outbox_arrival"'),
    ('table',    '"public"."outbox_router"'),
    ('table',    '"public"."outbox_stream"'),
    ('table',    '"public"."outbox_queue"'),
    ('table',    '"public"."outbox_log"'),
    ('table',    '"public"."outbox_log_pending"'),
    ('table',    '"public"."outbox_log_counter"'),
    ('table',    '"public"."outbox_log_group"'),
    ('table',    '"public"."outbox_log_dead"'),
    ('table',    '"public"."outbox_event"'),
    ('table',    '"public"."outbox_event_stream"'),
    ('table',    '"public"."outbox_event_swept"'),
    ('table',    '"public"."outbox_paused"'),
    ('table',    '"public"."outbox_audit"'),
    ('index',    '"public"."outbox_paused_pk"'),
    ('index',    '"public"."outbox_audit_pk"'),
    ('index',    '"public"."outbox_log_topic"'),
    ('index',    '"public"."outbox_event_pk"'),
    ('index',    '"public"."outbox_event_seq"'),
    ('index',    '"public"."outbox_event_stream_pk"'),
    ('index',    '"public"."outbox_event_stream_no"'),
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
    ('index',    '"public"."outbox_worker_lives"'),
    ('index',    '"public"."outbox_wake_pk"'),
    ('index',    '"public"."outbox_arrival_pk"'),
    ('index',    '"public"."outbox_router_pk"'),
    ('index',    '"public"."outbox_stream_pk"'),
    ('index',    '"public"."outbox_stream_ready"'),
    ('index',    '"public"."outbox_stream_blocked"'),
    ('index',    '"public"."outbox_queue_pk"'),
    ('view',     '"public"."outbox_view"'),
    ('view',     '"public"."outbox_kept"'),
    ('function', '"public"."outbox_claim"(json)'),
    ('function', '"public"."outbox_settle"(json)'),
    ('function', '"public"."outbox_stage_save"(json)'),
    ('function', '"public"."outbox_renew"(json)'),
    ('function', '"public"."outbox_reap"(json)'),
    ('function', '"public"."outbox_give_back"(integer,bigint[])'),
    ('function', '"public"."outbox_worker_number"(text)'),
    ('function', '"public"."outbox_worker_beat"(json)'),
    ('function', '"public"."outbox_worker_list"(json)'),
    ('function', '"public"."outbox_worker_purge"(json)'),
    ('function', '"public"."outbox_stream_route"(integer,integer,integer,uuid,bigint[],json)'),
    ('function', '"public"."outbox_stream_claim"(uuid,bigint[],integer,integer[],integer,bigint,boolean,json,timestamptz,bigint[],bigint[],bigint[])'),
    ('function', '"public"."outbox_stream_lock"(bigint[])'),
    ('function', '"public"."outbox_stream_unfold"(bigint[])'),
    ('function', '"public"."outbox_stream_free"(bigint[],bigint[])'),
    ('function', '"public"."outbox_stream_list"(json)'),
    ('function', '"public"."outbox_stream_resume"(json)'),
    ('function', '"public"."outbox_stream_take"(json)'),
    ('function', '"public"."outbox_stream_topics"(json)'),
    ('function', '"public"."outbox_requeue"(json)'),
    ('function', '"public"."outbox_purge"(json)'),
    ('function', '"public"."outbox_topics"(json)'),
    ('function', '"public"."outbox_failed"(json)'),
    ('function', '"public"."outbox_held"(json)'),
    ('function', '"public"."outbox_get"(json)'),
    ('function', '"public"."outbox_dead_scan"(json)'),
    ('function', '"public"."outbox_list"(json)'),
    ('function', '"public"."outbox_story"(json)'),
    ('function', '"public"."outbox_join_of"(json)'),
    ('function', '"public"."outbox_health"(json)'),
    ('function', '"public"."outbox_leases"(json)'),
    ('function', '"public"."outbox_log_groups"(json)'),
    ('function', '"public"."outbox_end"(json)'),
    ('function', '"public"."outbox_delay"(json)'),
    ('function', '"public"."outbox_topic_pause"(json)'),
    ('function', '"public"."outbox_topic_resume"(json)'),
    ('function', '"public"."outbox_topic_paused"(json)'),
    ('function', '"public"."outbox_audit_add"(json)'),
    ('function', '"public"."outbox_audit_list"(json)'),
    ('function', '"public"."outbox_audit_purge"(json)'),
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
    ('function', '"public"."outbox_join_wake"()'),
    ('function', '"public"."outbox_entry_add"(json)'),
    ('function', '"public"."outbox_entry_get"(json)'),
    ('function', '"public"."outbox_entry_save"(json,bytea)'),
    ('function', '"public"."outbox_entry_purge"(json)'),
    ('function', '"public"."outbox_log_stamp"(json)'),
    ('function', '"public"."outbox_log_lease"(json)'),
    ('function', '"public"."outbox_log_read"(json)'),
    ('function', '"public"."outbox_log_purge"(json)'),
    ('function', '"public"."outbox_log_forget"(json)'),
    ('function', '"public"."outbox_log_skip"(json)'),
    ('function', '"public"."outbox_log_dead_add"(json)'),
    ('function', '"public"."outbox_log_dead_list"(json)'),
    ('function', '"public"."outbox_log_dead_requeue"(json)'),
    ('function', '"public"."outbox_log_dead_discard"(json)'),
    ('function', '"public"."outbox_event_append"(json,bytea)'),
    ('function', '"public"."outbox_event_read"(json)'),
    ('function', '"public"."outbox_event_read_all"(json)'),
    ('function', '"public"."outbox_event_change"(json)'),
    ('function', '"public"."outbox_event_purge"(json)'),
    ('function', '"public"."outbox_event_wait"(json)'),
    ('function', '"public"."outbox_ack"(uuid,json)'),
    ('function', '"public"."outbox_abandon"(uuid,json,text)'),
    ('function', '"public"."outbox_fail"(uuid,json,text)')) AS w(kind, name)
WHERE CASE w.kind WHEN 'function' THEN to_regprocedure(w.name) IS NULL WHEN 'type' THEN to_regtype(w.name) IS NULL ELSE to_regclass(w.name) IS NULL END
UNION ALL
SELECT 'column ' || c.name || ' of the table ' || c.of || ' is missing'
FROM (SELECT '"public"."outbox"' AS of, unnest(ARRAY['seq', 'message_id', 'uuid', 'topic', 'topic_key', 'payload', 'headers', 'correlation_id',
                                                    'stream_key', 'stream_id', 'created_at', 'due_at']) AS name
      UNION ALL
      SELECT '"public"."outbox_state"', unnest(ARRAY['seq', 'topic_key', 'stream_id', 'next_attempt_at', 'processed_at', 'owner_token', 'size', 'retry_count',
                                                     'worker_id', 'status', 'flags', 'stages', 'ready', 'dead_at'])
      UNION ALL
      SELECT '"public"."outbox_stream"', unnest(ARRAY['stream_id', 'topic_key', 'next_attempt_at', 'run_last', 'head', 'owner_token', 'status'])
      UNION ALL
      SELECT '"public"."outbox_worker"', unnest(ARRAY['worker_id', 'name', 'started_at', 'seen_at', 'lives_until', 'stopped_at'])) AS c
WHERE to_regclass(c.of) IS NOT NULL
  AND NOT EXISTS (SELECT FROM pg_attribute AS a
                  WHERE a.attrelid = to_regclass(c.of) AND a.attname = c.name AND NOT a.attisdropped)
UNION ALL
SELECT 'the table "public"."outbox" is of an earlier layout, with contents and states in one, and cannot be carried over: have its messages handled, drop its tables and migrate, or install under another Table'
FROM pg_attribute AS a
WHERE a.attrelid = to_regclass('"public"."outbox"') AND a.attname = 'locked_until' AND NOT a.attisdropped
UNION ALL
SELECT 'the table "public"."outbox_state" is of an earlier layout, in which ' || a.attname || ' is a generated column: have its messages handled, drop its tables and migrate, or do what the CHANGELOG says'
FROM pg_attribute AS a
WHERE a.attrelid = to_regclass('"public"."outbox_state"') AND a.attname IN ('ready', 'dead_at') AND a.attgenerated <> ''
UNION ALL
SELECT 'numbers of the table ' || d.refobjid::regclass || ' are cached by each connection, which loses the order of messages: ALTER SEQUENCE ' || d.objid::regclass || ' CACHE 1'
FROM pg_depend AS d INNER JOIN pg_sequence AS s ON s.seqrelid = d.objid
WHERE d.refobjid IN (to_regclass('"public"."outbox"'), to_regclass('"public"."outbox_arrival"')) AND d.classid = 'pg_class'::regclass AND s.seqcache > 1
UNION ALL
SELECT 'the encoding of the database is ' || current_setting('server_encoding') || ': only UTF8 holds every text'
WHERE current_setting('server_encoding') <> 'UTF8'
UNION ALL
SELECT 'PostgreSQL ' || current_setting('server_version') || ' is older than 14'
WHERE current_setting('server_version_num')::int < 140000;
