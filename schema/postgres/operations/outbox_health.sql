-- What tells whether the outbox is being served: the database's clock, leases that run and that have expired, dead letters, and what
-- waits for a position in the log. Counts end at counted.
-- Called as: SELECT * FROM "public"."outbox_health"($1)
DROP FUNCTION IF EXISTS "public"."outbox_health"(json);
CREATE FUNCTION "public"."outbox_health"(arg json) RETURNS TABLE (
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
BEGIN
    RETURN QUERY
    SELECT (extract(epoch FROM moment) * 1000)::bigint,
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_lease" AS l WHERE l.locked_until > moment ORDER BY l.locked_until LIMIT most) AS c),
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_lease" AS l WHERE l.locked_until <= moment ORDER BY l.locked_until LIMIT most) AS c),
           (SELECT (extract(epoch FROM l.locked_until) * 1000)::bigint FROM "public"."outbox_lease" AS l WHERE l.locked_until <= moment ORDER BY l.locked_until LIMIT 1),
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_state" AS s WHERE s.dead_at IS NOT NULL ORDER BY s.dead_at LIMIT most) AS c),
           (SELECT (extract(epoch FROM s.dead_at) * 1000)::bigint FROM "public"."outbox_state" AS s WHERE s.dead_at IS NOT NULL ORDER BY s.dead_at LIMIT 1),
           (SELECT (extract(epoch FROM s.dead_at) * 1000)::bigint FROM "public"."outbox_state" AS s WHERE s.dead_at IS NOT NULL ORDER BY s.dead_at DESC LIMIT 1),
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_log_pending" AS p ORDER BY p.seq LIMIT most) AS c),
           (SELECT (extract(epoch FROM o.created_at) * 1000)::bigint FROM "public"."outbox" AS o
            WHERE o.seq = (SELECT p.seq FROM "public"."outbox_log_pending" AS p ORDER BY p.seq LIMIT 1)),
           coalesce(last, 0), (SELECT (extract(epoch FROM g.logged_at) * 1000)::bigint FROM "public"."outbox_log" AS g WHERE g.position = last);
END
$outbox$;
