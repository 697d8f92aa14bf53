-- Reads up to limit messages of a topic after a position, in order; where the topic is '', of all topics. The age is since
-- the message got its position.
-- Called as: SELECT * FROM "public"."outbox_log_read"($1)
DROP FUNCTION IF EXISTS "public"."outbox_log_read"(json);
CREATE FUNCTION "public"."outbox_log_read"(arg json) RETURNS TABLE (
    "position" bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int, logged_ms bigint, age_ms bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF arg->>'topic' = '' THEN
        RETURN QUERY
        SELECT l.position, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
               (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint, o.retry_count,
               floor(extract(epoch FROM l.logged_at) * 1000)::bigint, floor(extract(epoch FROM moment - l.logged_at) * 1000)::bigint
        FROM "public"."outbox_log" AS l INNER JOIN "public"."outbox" AS o ON o.message_id = l.message_id
        WHERE l.position > (arg->>'after')::bigint
        ORDER BY l.position
        LIMIT (arg->>'limit')::int;
        RETURN;
    END IF;

    RETURN QUERY
    SELECT l.position, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint, o.retry_count,
           floor(extract(epoch FROM l.logged_at) * 1000)::bigint, floor(extract(epoch FROM moment - l.logged_at) * 1000)::bigint
    FROM "public"."outbox_log" AS l INNER JOIN "public"."outbox" AS o ON o.message_id = l.message_id
    WHERE l.topic = (arg->>'topic') COLLATE "C" AND l.position > (arg->>'after')::bigint
    ORDER BY l.topic, l.position
    LIMIT (arg->>'limit')::int;
END
$outbox$;
