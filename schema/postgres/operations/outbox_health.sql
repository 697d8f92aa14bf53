-- What tells whether the outbox is being served: the database's clock, leases that run and that have expired, dead letters, and what
-- waits for a position in the log. Counts end at counted. A lease stays for a while after its messages have ended: of the expired
-- ones, the oldest looked are counted only if they still hold a message or a stream.
-- Called as: SELECT * FROM "public"."outbox_health"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_health"(arg json) RETURNS TABLE (
    now_ms bigint, leases bigint, expired bigint, expired_ms bigint, failed bigint, oldest_failed_ms bigint, newest_failed_ms bigint,
    unlogged bigint, oldest_unlogged_ms bigint, "position" bigint, logged_ms bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    most   int         := (arg->>'counted')::int;
    last   bigint      := (SELECT c.position FROM "public"."outbox_log_counter" AS c WHERE c.id = 1);
    empty  uuid[]      := ARRAY(
        SELECT f.owner_token
        FROM (SELECT l.* FROM "public"."outbox_lease" AS l WHERE l.locked_until <= moment ORDER BY l.locked_until LIMIT coalesce((arg->>'looked')::int, 0)) AS f
        WHERE NOT EXISTS (SELECT FROM unnest(f.seqs) AS q(seq) CROSS JOIN LATERAL (
                  SELECT FROM "public"."outbox_state" AS s WHERE s.seq = q.seq AND s.owner_token = f.owner_token LIMIT 1) AS h)
          AND NOT EXISTS (SELECT FROM unnest(f.streams) AS q(id) CROSS JOIN LATERAL (
                  SELECT FROM "public"."outbox_stream" AS t WHERE t.stream_id = q.id AND t.owner_token = f.owner_token LIMIT 1) AS h));
BEGIN
    RETURN QUERY
    SELECT (extract(epoch FROM moment) * 1000)::bigint,
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_lease" AS l WHERE l.locked_until > moment ORDER BY l.locked_until LIMIT most) AS c),
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_lease" AS l
                                  WHERE l.locked_until <= moment AND l.owner_token <> ALL (empty) ORDER BY l.locked_until LIMIT most) AS c),
           (SELECT (extract(epoch FROM l.locked_until) * 1000)::bigint FROM "public"."outbox_lease" AS l
            WHERE l.locked_until <= moment AND l.owner_token <> ALL (empty) ORDER BY l.locked_until LIMIT 1),
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_state" AS s WHERE s.dead_at IS NOT NULL ORDER BY s.dead_at LIMIT most) AS c),
           (SELECT (extract(epoch FROM s.dead_at) * 1000)::bigint FROM "public"."outbox_state" AS s WHERE s.dead_at IS NOT NULL ORDER BY s.dead_at LIMIT 1),
           (SELECT (extract(epoch FROM s.dead_at) * 1000)::bigint FROM "public"."outbox_state" AS s WHERE s.dead_at IS NOT NULL ORDER BY s.dead_at DESC LIMIT 1),
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_log_pending" AS p ORDER BY p.seq LIMIT most) AS c),
           (SELECT (extract(epoch FROM o.created_at) * 1000)::bigint FROM "public"."outbox" AS o
            WHERE o.seq = (SELECT p.seq FROM "public"."outbox_log_pending" AS p ORDER BY p.seq LIMIT 1)),
           coalesce(last, 0), (SELECT (extract(epoch FROM g.logged_at) * 1000)::bigint FROM "public"."outbox_log" AS g WHERE g.position = last);
END
$outbox$;
