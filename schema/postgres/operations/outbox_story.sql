-- What happened to one message beside its state: its attempts, its place in the log and in its stream, and the consumer groups
-- that gave it up. Each row is an event of a kind, with a time, a number, a status, a name and a text, as far as it has them.
-- Called as: SELECT * FROM "public"."outbox_story"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_story"(arg json) RETURNS TABLE (kind text, at_ms bigint, number bigint, status int, name text, detail text)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    wanted uuid := (arg->>'id')::uuid;
    most   int  := (arg->>'limit')::int;
    found  bigint;
    stream bigint;
    spot   bigint := (SELECT l.position FROM "public"."outbox_log" AS l WHERE l.message_id = wanted ORDER BY l.message_id LIMIT 1);
BEGIN
    SELECT o.seq, o.stream_id INTO found, stream FROM "public"."outbox" AS o WHERE o.message_id = wanted;

    RETURN QUERY
    SELECT 'attempt'::text, (extract(epoch FROM a.happened_at) * 1000)::bigint, a.attempt::bigint, a.outcome::int, w.name::text, a.error
    FROM (SELECT a.* FROM "public"."outbox_attempt" AS a WHERE a.seq = found ORDER BY a.attempt_id DESC LIMIT most) AS a
    LEFT JOIN LATERAL (SELECT w.name FROM "public"."outbox_worker" AS w WHERE w.worker_id = a.worker_id LIMIT 1) AS w ON true;

    RETURN QUERY
    SELECT 'unlogged'::text, NULL::bigint, NULL::bigint, NULL::int, p.topic::text, NULL::text
    FROM "public"."outbox_log_pending" AS p WHERE p.message_id = wanted
    UNION ALL
    SELECT 'logged', (extract(epoch FROM l.logged_at) * 1000)::bigint, l.position, NULL, l.topic::text, NULL
    FROM "public"."outbox_log" AS l WHERE l.position = spot
    UNION ALL
    SELECT 'given up', (extract(epoch FROM d.failed_at) * 1000)::bigint, d.position, d.attempts, d.group_name::text, d.reason
    FROM (SELECT d.* FROM "public"."outbox_log_dead" AS d WHERE d.position = spot ORDER BY d.position LIMIT most) AS d
    UNION ALL
    SELECT 'stream', NULL,
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id AND q.seq < found LIMIT 10000) AS c),
           t.status::int, NULL, NULL
    FROM "public"."outbox_stream" AS t
    WHERE t.stream_id = stream
      AND (t.head = found OR EXISTS (SELECT FROM "public"."outbox_queue" AS q WHERE q.stream_id = stream AND q.seq = found));
END
$outbox$;
