-- Workers, those that live first, then those that were seen last, with what they hold: of the leases that run longest, and of
-- each of these the first sample messages.
-- Called as: SELECT * FROM "public"."outbox_worker_list"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_worker_list"(arg json) RETURNS TABLE (
    worker_id int, name text, started_ms bigint, seen_ms bigint, lives_until_ms bigint, stopped_ms bigint,
    leases bigint, messages bigint, streams bigint, now_ms bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT l.worker_id, count(DISTINCT l.owner_token) AS leases, count(k.seq) AS messages, count(DISTINCT k.stream_id) AS streams
        FROM (SELECT l.* FROM "public"."outbox_lease" AS l ORDER BY l.locked_until DESC LIMIT (arg->>'leases')::int) AS l
        LEFT JOIN LATERAL (
            SELECT s.seq, s.stream_id FROM unnest(l.seqs[1:(arg->>'sample')::int]) AS q
            CROSS JOIN LATERAL (SELECT s.* FROM "public"."outbox_state" AS s WHERE s.seq = q AND s.owner_token = l.owner_token LIMIT 1) AS s) AS k ON true
        GROUP BY l.worker_id)
    SELECT w.worker_id, w.name::text, (extract(epoch FROM w.started_at) * 1000)::bigint, (extract(epoch FROM w.seen_at) * 1000)::bigint,
           (extract(epoch FROM w.lives_until) * 1000)::bigint, (extract(epoch FROM w.stopped_at) * 1000)::bigint,
           coalesce(h.leases, 0), coalesce(h.messages, 0), coalesce(h.streams, 0), (extract(epoch FROM moment) * 1000)::bigint
    FROM (SELECT w.* FROM "public"."outbox_worker" AS w ORDER BY w.lives_until DESC LIMIT (arg->>'limit')::int) AS w
    LEFT JOIN held AS h ON h.worker_id = w.worker_id;
END
$outbox$;
