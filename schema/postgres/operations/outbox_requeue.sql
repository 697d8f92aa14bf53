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
        SELECT s.seq FROM "public"."outbox_state" AS s
        WHERE s.status = 3 AND s.processed_at <= until
          AND (arg->>'topic_key' IS NULL OR s.topic_key = (arg->>'topic_key')::bigint)
          AND (wanted IS NULL OR s.seq = ANY (ARRAY(SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = ANY (wanted))))
        ORDER BY s.processed_at, s.seq
        LIMIT (arg->>'limit')::int
        FOR UPDATE SKIP LOCKED),
    revived AS (
        UPDATE "public"."outbox_state" AS s
        SET status = 0, retry_count = 0, next_attempt_at = moment, processed_at = NULL, worker_id = NULL
        FROM failed AS f WHERE s.seq = ANY (ARRAY[f.seq])
        RETURNING 1)
    SELECT count(*), (extract(epoch FROM until) * 1000000)::bigint FROM revived;
END
$outbox$;
