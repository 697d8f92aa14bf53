-- Adds ended steps to the counters of joins, ends those that have a verdict, and makes sure that the messages that wait for
-- them become due. Returns the joins that have ended, once for each topic to wake. Joins are locked first, in order and in a
-- separate statement, so that the next one sees everything committed before the lock was granted. NO KEY, because an attaching
-- transaction holds the key. Ended joins no longer count. It waits for no message after the joins: a caller's transaction may
-- have made it a step of another join, and stay open. A locked message is noted in outbox_wake, and the next claim makes it
-- due. Waits are looked up by subqueries, so that the planner has no choice. The 0 keeps it from the index of ready messages,
-- so that states are found by their keys.
CREATE OR REPLACE FUNCTION "public"."outbox_join_advance"(joins uuid[], done int[], dead int[]) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    ended   uuid[];
    waiting bigint[];
    free    bigint[];
BEGIN
    PERFORM FROM "public"."outbox_join" AS j WHERE j.join_id = ANY (joins) ORDER BY j.join_id FOR NO KEY UPDATE;

    UPDATE "public"."outbox_join" AS j
    SET completed_steps = j.completed_steps + d.done, failed_steps = j.failed_steps + d.dead, last_updated_at = moment
    FROM (SELECT unnest(joins) AS id, unnest(done) AS done, unnest(dead) AS dead) AS d
    WHERE j.join_id = ANY (ARRAY[d.id]) AND j.status = 0;

    WITH over AS (
        UPDATE "public"."outbox_join" AS j
        SET status = j.verdict, last_updated_at = moment
        WHERE j.join_id = ANY (joins) AND j.status = 0 AND j.verdict <> 0
        RETURNING j.join_id)
    SELECT array_agg(o.join_id) INTO ended FROM over AS o;
    IF ended IS NULL THEN
        RETURN;
    END IF;

    waiting := ARRAY(
        SELECT (SELECT s.seq FROM "public"."outbox_state" AS s
                WHERE s.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = w.message_id) AND s.status + 0 = 0)
        FROM "public"."outbox_join_wait" AS w WHERE w.join_id = ANY (ended)
        ORDER BY 1);
    free := ARRAY(
        SELECT t.seq FROM unnest(waiting) AS s
        CROSS JOIN LATERAL (SELECT t.seq FROM "public"."outbox_state" AS t WHERE t.seq = s AND t.status + 0 = 0 FOR UPDATE SKIP LOCKED) AS t);
    UPDATE "public"."outbox_state" AS s SET next_attempt_at = moment WHERE s.seq = ANY (free) AND s.status + 0 = 0;
    INSERT INTO "public"."outbox_wake" (seq) SELECT w FROM unnest(waiting) AS w WHERE w IS NOT NULL EXCEPT SELECT unnest(free);

    RETURN QUERY
    SELECT DISTINCT 0::bigint, j.join_id::text, t.topic, j.status::int, j.expected_steps, j.completed_steps, j.failed_steps
    FROM "public"."outbox_join" AS j
    LEFT JOIN LATERAL (
        SELECT (SELECT o.topic::text FROM "public"."outbox" AS o WHERE o.message_id = w.message_id) AS topic
        FROM "public"."outbox_join_wait" AS w WHERE w.join_id = j.join_id
        OFFSET 0) AS t ON true
    WHERE j.join_id = ANY (ended);
END
$outbox$;
