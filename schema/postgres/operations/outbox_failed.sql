-- The most recent dead letters, of one topic or of all.
-- Called as: SELECT * FROM "public"."outbox_failed"($1)
DROP FUNCTION IF EXISTS "public"."outbox_failed"(json);
CREATE FUNCTION "public"."outbox_failed"(arg json) RETURNS TABLE (
    seq bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int, status int, next_attempt_ms bigint, locked_until_ms bigint,
    owner_token text, last_error text, processed_ms bigint, processed_by text)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $outbox$
    SELECT o.seq, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint,
           o.retry_count, o.status::int, (extract(epoch FROM o.next_attempt_at) * 1000)::bigint,
           (extract(epoch FROM o.locked_until) * 1000)::bigint, o.owner_token::text, o.last_error,
           (extract(epoch FROM o.processed_at) * 1000)::bigint, o.processed_by
    FROM "public"."outbox" AS o
    WHERE o.status >= 2 AND o.status = 3 AND (arg->>'topic' IS NULL OR o.topic = arg->>'topic')
    ORDER BY o.processed_at DESC, o.seq DESC
    LIMIT (arg->>'limit')::int;
$outbox$;
