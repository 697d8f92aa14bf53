-- Moves a consumer group past the message of a topic that it has tried and not passed, and takes the lease from its reader,
-- which then goes on from there. Returns the message's position and attempts, or nothing if there is none.
-- Called as: SELECT * FROM "public"."outbox_log_skip"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_skip"(arg json) RETURNS TABLE ("position" bigint, attempts int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $outbox$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    UPDATE "public"."outbox_log_group" AS g
    SET position = g.tried, owner_token = NULL, locked_until = NULL
    WHERE g.group_name = (arg->>'group') COLLATE "C" AND g.topic = (arg->>'topic') COLLATE "C" AND g.tried > g.position AND g.attempts > 0
    RETURNING g.position, g.attempts;
END
$outbox$;
