-- Ends a step by report, in one join or, without an id, in all that have it; a second report changes nothing. Returns a
-- refusal (seq -1 no such join, -5 the message is no step of it) or the joins that have ended.
-- Called as: SELECT * FROM "public"."outbox_join_report"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_report"(arg json) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    target uuid    := (arg->>'id')::uuid;
    step   uuid    := (arg->>'message')::uuid;
    bad    boolean := (arg->>'failed')::boolean;
    joins  uuid[];
BEGIN
    IF target IS NOT NULL AND NOT EXISTS (
        SELECT FROM "public"."outbox_join_member" AS m WHERE m.join_id = target AND m.message_id = step) THEN
        RETURN QUERY
        SELECT CASE WHEN EXISTS (SELECT FROM "public"."outbox_join" AS j WHERE j.join_id = target) THEN -5 ELSE -1 END::bigint,
               target::text, NULL::text, NULL::int, NULL::int, NULL::int, NULL::int;
        RETURN;
    END IF;
    WITH counted AS (
        UPDATE "public"."outbox_join_member" AS m
        SET status = CASE WHEN bad THEN 2 ELSE 1 END
        WHERE m.message_id = step AND m.status = 0 AND (target IS NULL OR m.join_id = target)
        RETURNING m.join_id)
    SELECT array_agg(c.join_id) INTO joins FROM counted AS c;
    IF joins IS NOT NULL THEN
        RETURN QUERY SELECT * FROM "public"."outbox_join_advance"(joins,
            array_fill(CASE WHEN bad THEN 0 ELSE 1 END, ARRAY[cardinality(joins)]),
            array_fill(CASE WHEN bad THEN 1 ELSE 0 END, ARRAY[cardinality(joins)]));
    END IF;
END
$outbox$;
