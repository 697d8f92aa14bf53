-- Reads the log after a position, in order: up to limit positions and up to a number of bytes; a larger event comes alone.
-- Messages that are no events come without contents and with version 0, so that one call never looks at more than limit rows.
-- What is an event is said by its row: anybody may send a message with such headers.
-- Called as: SELECT * FROM "public"."outbox_event_read_all"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_event_read_all"(arg json) RETURNS TABLE (
    stream text, version bigint, "position" bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text,
    created_ms bigint, last bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET jit = off SET join_collapse_limit = 1
AS $outbox$
#variable_conflict use_column
DECLARE
    start   bigint := (arg->>'after')::bigint;
    finish  bigint := (arg->>'to')::bigint;
    budget  bigint := (arg->>'bytes')::bigint;
BEGIN
    RETURN QUERY
    WITH page AS MATERIALIZED (
        SELECT n.*, sum(n.size) OVER (ORDER BY n.position ROWS UNBOUNDED PRECEDING) AS total
        FROM (SELECT l.position, o.seq, e.stream_no, e.version, coalesce(e.size, 0) AS size
              FROM "public"."outbox_log" AS l
              CROSS JOIN LATERAL (SELECT m.seq FROM "public"."outbox" AS m WHERE m.message_id = l.message_id LIMIT 1) AS o
              LEFT JOIN LATERAL (SELECT v.stream_no, v.version, v.size FROM "public"."outbox_event" AS v WHERE v.seq = o.seq LIMIT 1) AS e ON true
              WHERE l.position > start AND l.position <= finish
              ORDER BY l.position
              LIMIT (arg->>'limit')::int) AS n)
    SELECT coalesce(t.name, '')::text, coalesce(p.version, 0), p.position, coalesce(o.message_id::text, ''), coalesce(o.uuid, ''), coalesce(o.topic, '')::text,
           coalesce(o.payload, ''::bytea), o.headers, o.correlation_id, coalesce((date_part('epoch', o.created_at) * 1000)::bigint, 0), 0::bigint
    FROM page AS p
    LEFT JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.seq = p.seq LIMIT 1) AS o ON p.version IS NOT NULL
    LEFT JOIN LATERAL (SELECT s.name FROM "public"."outbox_event_stream" AS s WHERE s.stream_no = p.stream_no LIMIT 1) AS t ON true
    WHERE p.total <= budget OR p.total = p.size;
END
$outbox$;
