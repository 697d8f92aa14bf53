-- The heartbeat of a worker: it lives for live_ms from now. With start, it has just started; with stop, it has ended. Returns
-- how many workers live, and how many of them have a lower number.
-- Called as: SELECT * FROM "public"."outbox_worker_beat"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_worker_beat"(arg json) RETURNS TABLE (living bigint, lower bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
    number int         := "public"."outbox_worker_number"(arg->>'worker');
    ends   boolean     := coalesce((arg->>'stop')::boolean, false);
BEGIN
    UPDATE "public"."outbox_worker" AS w
    SET started_at = CASE WHEN (arg->>'start')::boolean THEN moment ELSE w.started_at END,
        seen_at = moment,
        lives_until = CASE WHEN ends THEN moment ELSE moment + (arg->>'live_ms')::bigint * interval '1 millisecond' END,
        stopped_at = CASE WHEN ends THEN moment END
    WHERE w.worker_id = number;

    RETURN QUERY
    SELECT count(*), count(*) FILTER (WHERE w.worker_id < number) FROM "public"."outbox_worker" AS w WHERE w.lives_until > moment;
END
$outbox$;
