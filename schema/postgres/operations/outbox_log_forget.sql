-- Removes a consumer group with the dead letters that are left, so that it no longer holds up purging; returns from how many
-- topics. Most dead letters were discarded in batches before. The others are locked in order of their positions, as then.
-- Called as: SELECT * FROM "public"."outbox_log_forget"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_forget"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $outbox$
BEGIN
    DELETE FROM "public"."outbox_log_dead" AS d WHERE d.group_name = arg->>'group';

    RETURN QUERY
    WITH gone AS (
        DELETE FROM "public"."outbox_log_group" AS g WHERE g.group_name = arg->>'group' RETURNING 1)
    SELECT count(*) FROM gone;
END
$outbox$;
