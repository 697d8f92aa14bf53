-- The most recent dead letters, of one topic or of all.
-- Called as: SELECT * FROM "public"."outbox_failed"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_failed"(arg json) RETURNS TABLE (
    seq bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int, status int, next_attempt_ms bigint, locked_until_ms bigint,
    owner_token text, last_error text, processed_ms bigint, processed_by text, stages int)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $outbox$
    SELECT o.seq, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint,
           coalesce(s.retry_count, 0), coalesce(s.status, 4)::int, (extract(epoch FROM coalesce(s.next_attempt_at, o.created_at)) * 1000)::bigint,
           (extract(epoch FROM l.locked_until) * 1000)::bigint, s.owner_token::text,
           (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1),
           (extract(epoch FROM s.processed_at) * 1000)::bigint, w.name::text, s.stages
    FROM (SELECT s.* FROM "public"."outbox_state" AS s
          WHERE s.dead_at IS NOT NULL AND (arg->>'topic_key' IS NULL OR s.topic_key = (arg->>'topic_key')::bigint)
          ORDER BY s.dead_at DESC, s.seq DESC
          LIMIT (arg->>'limit')::int) AS s
    CROSS JOIN LATERAL (SELECT o.* FROM "public"."outbox" AS o WHERE o.seq = s.seq LIMIT 1) AS o
    LEFT JOIN LATERAL (SELECT l.* FROM "public"."outbox_lease" AS l WHERE l.owner_token = s.owner_token LIMIT 1) AS l ON true
    LEFT JOIN LATERAL (SELECT w.* FROM "public"."outbox_worker" AS w WHERE w.worker_id = s.worker_id LIMIT 1) AS w ON true
    WHERE arg->>'topic' IS NULL OR o.topic = arg->>'topic';
$outbox$;
