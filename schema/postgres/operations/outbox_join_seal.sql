-- Closes an open join: it expects the steps that it has, and ends if they all have ended. A sealed join stays as it is.
-- Returns a refusal (seq -1 no such join, -2 it has ended), or the join if it has ended. It waits for the row of the size,
-- and writes to it so that attaching with an older snapshot fails: a transaction that attaches is counted entirely or not at
-- all.
-- Called as: SELECT * FROM "public"."outbox_join_seal"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_seal"(arg json) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $outbox$
#variable_conflict use_column
DECLARE
    target   uuid := (arg->>'id')::uuid;
    attached int;
    sealed   boolean;
    pending  boolean;
BEGIN
    UPDATE "public"."outbox_join_size" AS s SET attached = s.attached WHERE s.join_id = target RETURNING s.attached INTO attached;
    SELECT j.expected_steps IS NOT NULL, j.status = 0 INTO sealed, pending
    FROM "public"."outbox_join" AS j WHERE j.join_id = target FOR NO KEY UPDATE;
    IF pending AND NOT sealed THEN
        UPDATE "public"."outbox_join" AS j SET expected_steps = attached WHERE j.join_id = target;
        RETURN QUERY SELECT * FROM "public"."outbox_join_advance"(ARRAY[target], ARRAY[0], ARRAY[0]);
    ELSIF pending IS NULL OR NOT pending THEN
        RETURN QUERY SELECT CASE WHEN pending IS NULL THEN -1 ELSE -2 END::bigint, target::text,
            NULL::text, NULL::int, NULL::int, NULL::int, NULL::int;
    END IF;
END
$outbox$;
