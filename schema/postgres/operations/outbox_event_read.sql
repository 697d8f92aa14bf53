-- Reads the events of a stream from a version on, forwards or backwards: up to limit events and up to a number of bytes; a
-- larger event comes alone. Each row has the version at which the stream ends in that direction, so that the reader needs no
-- further call to know. Of an archived stream, unless that is asked for, it returns one row with version -1.
-- Called as: SELECT * FROM "public"."outbox_event_read"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_event_read"(arg json) RETURNS TABLE (
    stream text, version bigint, "position" bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text,
    created_ms bigint, last bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    wanted text COLLATE "C" := arg->>'stream';
    start  bigint           := (arg->>'from')::bigint;
    most   int              := (arg->>'limit')::int;
    budget bigint           := (arg->>'bytes')::bigint;
    s      record;
BEGIN
    SELECT t.stream_no, t.version, t.hidden, t.archived INTO s FROM "public"."outbox_event_stream" AS t WHERE t.name = wanted;
    IF s.archived AND NOT (arg->>'archived')::boolean THEN
        RETURN QUERY SELECT wanted::text, -1::bigint, 0::bigint, '', '', '', ''::bytea, '', '', 0::bigint, s.version;
        RETURN;
    END IF;
    IF (arg->>'backwards')::boolean THEN
        RETURN QUERY
        WITH page AS MATERIALIZED (
            SELECT n.version, n.seq, n.size, sum(n.size) OVER (ORDER BY n.version DESC ROWS UNBOUNDED PRECEDING) AS total
            FROM (SELECT e.version, e.seq, e.size
                  FROM "public"."outbox_event" AS e
                  WHERE e.stream_no = s.stream_no AND e.version <= start AND e.version > s.hidden
                  ORDER BY e.stream_no DESC, e.version DESC
                  LIMIT most) AS n)
        SELECT wanted::text, p.version, 0::bigint, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id,
               (date_part('epoch', o.created_at) * 1000)::bigint, s.hidden + 1
        FROM page AS p CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.seq = p.seq LIMIT 1) AS o
        WHERE p.total <= budget OR p.total = p.size;
        RETURN;
    END IF;
    RETURN QUERY
    WITH page AS MATERIALIZED (
        SELECT n.version, n.seq, n.size, sum(n.size) OVER (ORDER BY n.version ROWS UNBOUNDED PRECEDING) AS total
        FROM (SELECT e.version, e.seq, e.size
              FROM "public"."outbox_event" AS e
              WHERE e.stream_no = s.stream_no AND e.version >= start AND e.version > s.hidden
              ORDER BY e.stream_no, e.version
              LIMIT most) AS n)
    SELECT wanted::text, p.version, 0::bigint, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id,
           (date_part('epoch', o.created_at) * 1000)::bigint, s.version
    FROM page AS p CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.seq = p.seq LIMIT 1) AS o
    WHERE p.total <= budget OR p.total = p.size;
END
$outbox$;
