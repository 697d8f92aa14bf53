-- Ends a join as cancelled; its waits take the failure path. Returns a refusal (seq -1 no such join, -2 it has ended),
-- otherwise the join.
-- Called as: SELECT * FROM "public"."outbox_join_cancel"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_cancel"(arg json) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $outbox$
#variable_conflict use_column
DECLARE
    target  uuid := (arg->>'id')::uuid;
    pending boolean;
BEGIN
    SELECT j.status = 0 INTO pending FROM "public"."outbox_join" AS j WHERE j.join_id = target FOR NO KEY UPDATE;
    IF pending THEN
        UPDATE "public"."outbox_join" AS j SET cancelled = true WHERE j.join_id = target;
        RETURN QUERY SELECT * FROM "public"."outbox_join_advance"(ARRAY[target], ARRAY[0], ARRAY[0]);
    ELSE
        RETURN QUERY SELECT CASE WHEN pending IS NULL THEN -1 ELSE -2 END::bigint, target::text,
            NULL::text, NULL::int, NULL::int, NULL::int, NULL::int;
    END IF;
END
$outbox$;
