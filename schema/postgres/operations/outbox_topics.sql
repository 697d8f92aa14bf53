-- The topics that have due messages waiting, with their number (counted up to limit) and the oldest due time.
-- Jumps from topic to topic in the index, so that it costs by topics and not by messages.
-- Called as: SELECT * FROM "public"."outbox_topics"($1)
DROP FUNCTION IF EXISTS "public"."outbox_topics"(json);
CREATE FUNCTION "public"."outbox_topics"(arg json) RETURNS TABLE (topic text, waiting bigint, oldest_ms bigint, age_ms bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH RECURSIVE topics AS (
        (SELECT o.topic FROM "public"."outbox" AS o WHERE o.status = 0 ORDER BY o.topic LIMIT 1)
        UNION ALL
        SELECT (SELECT o.topic FROM "public"."outbox" AS o WHERE o.status = 0 AND o.topic > t.topic ORDER BY o.topic LIMIT 1)
        FROM topics AS t WHERE t.topic IS NOT NULL)
    SELECT t.topic::text, due.waiting, (extract(epoch FROM due.oldest) * 1000)::bigint,
           (extract(epoch FROM moment - due.oldest) * 1000)::bigint
    FROM topics AS t
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting, min(d.next_attempt_at) AS oldest
        FROM (SELECT o.next_attempt_at FROM "public"."outbox" AS o
              WHERE o.status = 0 AND o.topic = t.topic AND o.next_attempt_at <= moment
              ORDER BY o.next_attempt_at, o.seq
              LIMIT (arg->>'limit')::int) AS d) AS due
    WHERE due.waiting > 0;
END
$outbox$;
