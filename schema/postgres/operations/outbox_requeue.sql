-- Makes up to limit failed messages ready again with a fresh retry budget; answers how many, and until when they had
-- failed: the argument of the next call, so that many calls do not take again what has failed again meanwhile.
-- Both filters are optional: a topic, and a list of message ids.
-- Called as: SELECT * FROM "public"."outbox_requeue"($1)
DROP FUNCTION IF EXISTS "public"."outbox_requeue"(json);
CREATE FUNCTION "public"."outbox_requeue"(arg json) RETURNS TABLE (affected bigint, until_us bigint)
LANGUAGE plpgsql AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
    until  timestamptz := coalesce('epoch'::timestamptz + (arg->>'until')::bigint * interval '1 microsecond', moment);
    wanted uuid[] := (SELECT array_agg(e::uuid) FROM json_array_elements_text(arg->'ids') AS e);
BEGIN
    RETURN QUERY
    WITH failed AS MATERIALIZED (
        SELECT o.seq FROM "public"."outbox" AS o
        WHERE o.status = 3 AND o.processed_at <= until
          AND (arg->>'topic' IS NULL OR o.topic = arg->>'topic')
          AND (wanted IS NULL OR o.message_id = ANY (wanted))
        ORDER BY o.processed_at, o.seq
        LIMIT (arg->>'limit')::int
        FOR UPDATE SKIP LOCKED),
    revived AS (
        UPDATE "public"."outbox" AS o
        SET status = 0, retry_count = 0, next_attempt_at = moment, processed_at = NULL, processed_by = NULL
        FROM failed WHERE o.seq = failed.seq
        RETURNING 1)
    SELECT count(*), (extract(epoch FROM until) * 1000000)::bigint FROM revived;
END
$outbox$;
