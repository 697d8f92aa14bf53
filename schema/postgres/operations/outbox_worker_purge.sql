-- Deletes up to limit workers that have not lived for longer than the given age; returns how many. Locked ones are skipped. What
-- they handled then names no worker.
-- Called as: SELECT * FROM "public"."outbox_worker_purge"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_worker_purge"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
BEGIN
    RETURN QUERY
    WITH old AS MATERIALIZED (
        SELECT w.worker_id FROM "public"."outbox_worker" AS w
        WHERE w.lives_until < clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond'
        ORDER BY w.lives_until
        LIMIT (arg->>'limit')::int
        FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM "public"."outbox_worker" AS w USING old AS o WHERE w.worker_id = ANY (ARRAY[o.worker_id]) RETURNING 1)
    SELECT count(*) FROM gone;
END
$outbox$;
