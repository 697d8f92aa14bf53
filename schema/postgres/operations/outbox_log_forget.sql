-- Removes a consumer group, which then holds up no purge any more; answers of how many topics.
-- Called as: SELECT * FROM "public"."outbox_log_forget"($1)
DROP FUNCTION IF EXISTS "public"."outbox_log_forget"(json);
CREATE FUNCTION "public"."outbox_log_forget"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql AS $outbox$
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM "public"."outbox_log_group" AS g WHERE g.group_name = arg->>'group' RETURNING 1)
    SELECT count(*) FROM gone;
END
$outbox$;
