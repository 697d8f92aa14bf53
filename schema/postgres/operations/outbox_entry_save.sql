-- Marks an entry as processed, with its handler's result; returns whether it exists.
-- Called as: SELECT * FROM "public"."outbox_entry_save"($1, $2)
CREATE OR REPLACE FUNCTION "public"."outbox_entry_save"(arg json, payloads bytea) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $outbox$
BEGIN
    RETURN QUERY
    WITH saved AS (
        UPDATE "public"."outbox_entry" AS e
        SET processed_at = coalesce(e.processed_at, clock_timestamp()), result = payloads
        WHERE e.handler = arg->>'handler' AND e.source = arg->>'source' AND e.message_id = arg->>'message_id'
        RETURNING 1)
    SELECT count(*) FROM saved;
END
$outbox$;
