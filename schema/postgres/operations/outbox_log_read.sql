-- Reads messages of a topic, or of all topics if it is '', after a position and in order: up to limit messages and up to a
-- number of bytes; a larger message comes alone. The age counts from when the message was given its position. If the log
-- ends before the position, or has a different message there than the reader has read, the database is older than the
-- reader: the result is one row without a message, with the last position given.
-- Called as: SELECT * FROM "public"."outbox_log_read"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_read"(arg json) RETURNS TABLE (
    "position" bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int, logged_ms bigint, age_ms bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off
SET join_collapse_limit = 1
AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    start  bigint      := (arg->>'after')::bigint;
    budget bigint      := (arg->>'bytes')::bigint;
    highest bigint;
BEGIN
    SELECT c.position INTO highest FROM "public"."outbox_log_counter" AS c WHERE c.id = 1;
    IF highest < start OR arg->>'message' <> '' AND EXISTS (
        SELECT FROM "public"."outbox_log" AS l WHERE l.position = start AND l.message_id <> (arg->>'message')::uuid) THEN
        RETURN QUERY SELECT highest, '', '', '', ''::bytea, '', '', '', 0::bigint, 0::bigint, 0, 0::bigint, 0::bigint;
        RETURN;
    END IF;

    IF arg->>'topic' = '' THEN
        RETURN QUERY
        WITH page AS MATERIALIZED (
            SELECT n.position, n.seq, n.logged_at, n.size, sum(n.size) OVER (ORDER BY n.position ROWS UNBOUNDED PRECEDING) AS total
            FROM (SELECT l.position, l.logged_at, o.seq, (octet_length(o.payload) + coalesce(octet_length(o.headers), 0))::bigint AS size
                  FROM "public"."outbox_log" AS l CROSS JOIN LATERAL (
                      SELECT m.seq, m.payload, m.headers FROM "public"."outbox" AS m WHERE m.message_id = l.message_id LIMIT 1) AS o
                  WHERE l.position > start
                  ORDER BY l.position
                  LIMIT (arg->>'limit')::int) AS n)
        SELECT p.position, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
               (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint, 0,
               floor(extract(epoch FROM p.logged_at) * 1000)::bigint, floor(extract(epoch FROM moment - p.logged_at) * 1000)::bigint
        FROM page AS p CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.seq = p.seq LIMIT 1) AS o
        WHERE p.total <= budget OR p.total = p.size;
        RETURN;
    END IF;

    RETURN QUERY
    WITH page AS MATERIALIZED (
        SELECT n.position, n.seq, n.logged_at, n.size, sum(n.size) OVER (ORDER BY n.position ROWS UNBOUNDED PRECEDING) AS total
        FROM (SELECT l.topic, l.position, l.logged_at, o.seq, (octet_length(o.payload) + coalesce(octet_length(o.headers), 0))::bigint AS size
              FROM "public"."outbox_log" AS l CROSS JOIN LATERAL (
                  SELECT m.seq, m.payload, m.headers FROM "public"."outbox" AS m WHERE m.message_id = l.message_id LIMIT 1) AS o
              WHERE l.topic = (arg->>'topic') COLLATE "C" AND l.position > start
              ORDER BY l.topic, l.position
              LIMIT (arg->>'limit')::int) AS n)
    SELECT p.position, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint, 0,
           floor(extract(epoch FROM p.logged_at) * 1000)::bigint, floor(extract(epoch FROM moment - p.logged_at) * 1000)::bigint
    FROM page AS p CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.seq = p.seq LIMIT 1) AS o
    WHERE p.total <= budget OR p.total = p.size;
END
$outbox$;
