-- Lists the topics with due messages, with their number (counted up to limit) and the oldest due time, and those with dead
-- letters, with their number among the newest (limit of them). A topic may come twice. It jumps from topic to topic in the
-- index of what is due, so that the cost depends on topics and not on messages.
-- Called as: SELECT * FROM "public"."outbox_topics"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_topics"(arg json) RETURNS TABLE (topic text, waiting bigint, oldest_ms bigint, age_ms bigint, failed bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH RECURSIVE topics AS (
        (SELECT s.topic_key, s.seq FROM "public"."outbox_state" AS s WHERE s.ready ORDER BY s.topic_key LIMIT 1)
        UNION ALL
        SELECT n.topic_key, n.seq
        FROM topics AS t
        CROSS JOIN LATERAL (
            SELECT s.topic_key, s.seq FROM "public"."outbox_state" AS s WHERE s.ready AND s.topic_key > t.topic_key ORDER BY s.topic_key LIMIT 1) AS n)
    SELECT (SELECT o.topic::text FROM "public"."outbox" AS o WHERE o.seq = t.seq), due.waiting, (extract(epoch FROM due.oldest) * 1000)::bigint,
           (extract(epoch FROM moment - due.oldest) * 1000)::bigint, 0::bigint
    FROM topics AS t
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting, min(d.next_attempt_at) AS oldest
        FROM (SELECT s.next_attempt_at FROM "public"."outbox_state" AS s
              WHERE s.ready AND s.topic_key = t.topic_key AND s.next_attempt_at <= moment
              ORDER BY s.next_attempt_at, s.seq
              LIMIT (arg->>'limit')::int) AS d) AS due
    WHERE due.waiting > 0
    UNION ALL
    SELECT (SELECT o.topic::text FROM "public"."outbox" AS o WHERE o.seq = dead.seq), 0, (extract(epoch FROM moment) * 1000)::bigint, 0, dead.failed
    FROM (SELECT max(d.seq) AS seq, count(*) AS failed
          FROM (SELECT s.topic_key, s.seq FROM "public"."outbox_state" AS s
                WHERE s.dead_at IS NOT NULL ORDER BY s.dead_at DESC, s.seq DESC LIMIT (arg->>'limit')::int) AS d
          GROUP BY d.topic_key) AS dead;
END
$outbox$;
