-- The whole state of messages by message id, for people and tools; unknown ids are left out, and so are those deleted on
-- acknowledgement. A message without a state that is in the log is for the log alone (status 4).
-- Called as: SELECT * FROM "public"."outbox_get"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_get"(arg json) RETURNS TABLE (
    seq bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int, status int, next_attempt_ms bigint, locked_until_ms bigint,
    owner_token text, last_error text, processed_ms bigint, processed_by text, stages int)
LANGUAGE sql STABLE SET enable_seqscan = off AS $outbox$
    SELECT o.seq, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint,
           coalesce(s.retry_count, 0), CASE s.status WHEN 5 THEN 0 ELSE coalesce(s.status, 4) END::int, (extract(epoch FROM coalesce(s.next_attempt_at, o.created_at)) * 1000)::bigint,
           (extract(epoch FROM l.locked_until) * 1000)::bigint, s.owner_token::text,
           (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1),
           (extract(epoch FROM CASE WHEN s.seq IS NULL THEN o.created_at ELSE s.processed_at END) * 1000)::bigint,
           CASE WHEN s.seq IS NULL THEN 'log' ELSE w.name::text END, s.stages
    FROM "public"."outbox" AS o
    LEFT JOIN LATERAL (SELECT s.* FROM "public"."outbox_state" AS s WHERE s.seq = o.seq LIMIT 1) AS s ON true
    LEFT JOIN LATERAL (SELECT l.* FROM "public"."outbox_lease" AS l WHERE l.owner_token = s.owner_token LIMIT 1) AS l ON true
    LEFT JOIN LATERAL (SELECT w.* FROM "public"."outbox_worker" AS w WHERE w.worker_id = s.worker_id LIMIT 1) AS w ON true
    WHERE o.message_id = ANY (ARRAY(SELECT e::uuid FROM json_array_elements_text(arg->'ids') AS e))
      AND (s.seq IS NOT NULL OR EXISTS (SELECT FROM "public"."outbox_log" AS g WHERE g.message_id = o.message_id)
           OR EXISTS (SELECT FROM "public"."outbox_log_pending" AS g WHERE g.message_id = o.message_id));
$outbox$;
