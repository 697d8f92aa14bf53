-- Requeues dead letters of a consumer group, with all their attempts: up to limit, in log order, after a position. The topic
-- and the list of positions are optional. Returns how many, and the position of the last.
-- Called as: SELECT * FROM "public"."outbox_log_dead_requeue"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_dead_requeue"(arg json) RETURNS TABLE (affected bigint, last bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    wanted bigint[] := (SELECT array_agg(e::bigint) FROM json_array_elements_text(arg->'positions') AS e);
BEGIN
    RETURN QUERY
    WITH chosen AS MATERIALIZED (
        SELECT d.topic, d.position FROM "public"."outbox_log_dead" AS d
        WHERE d.group_name = (arg->>'group') COLLATE "C" AND d.position > (arg->>'after')::bigint AND NOT d.requeued
          AND (arg->>'topic' IS NULL OR d.topic = (arg->>'topic') COLLATE "C")
          AND (wanted IS NULL OR d.position = ANY (wanted))
        ORDER BY d.position
        LIMIT (arg->>'limit')::int
        FOR UPDATE),
    changed AS (
        UPDATE "public"."outbox_log_dead" AS d SET requeued = true, attempts = 0
        FROM chosen AS c
        WHERE d.group_name = (arg->>'group') COLLATE "C" AND d.position = c.position AND d.topic = c.topic
        RETURNING d.position)
    SELECT count(*), coalesce(max(c.position), 0) FROM changed AS c;
END
$outbox$;
