-- Lists the topics with messages waiting in streams, with their number (counted up to limit), the oldest due time, and how
-- many streams are blocked. It reads as many arrivals of each lane. It jumps from topic to topic in the indexes; leased streams
-- are found by their leases.
-- Called as: SELECT * FROM "public"."outbox_stream_topics"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_stream_topics"(arg json) RETURNS TABLE (topic text, waiting bigint, oldest_ms bigint, age_ms bigint, blocked bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    most   int         := (arg->>'limit')::int;
BEGIN
    RETURN QUERY
    WITH RECURSIVE arrived AS MATERIALIZED (
        SELECT a.topic_key, min(a.seq) AS seq, count(*) AS n
        FROM (SELECT a.topic_key, a.seq FROM "public"."outbox_router" AS r
              CROSS JOIN LATERAL (
                  SELECT a.topic_key, a.seq FROM "public"."outbox_arrival" AS a
                  WHERE a.lane = r.lane AND a.arrival_id > r.low ORDER BY a.arrival_id LIMIT most) AS a) AS a
        GROUP BY a.topic_key),
    served AS MATERIALIZED (
        SELECT t.topic_key, t.stream_id, t.run_last
        FROM "public"."outbox_lease" AS l
        CROSS JOIN LATERAL unnest(l.streams) AS u(id)
        CROSS JOIN LATERAL (SELECT t.* FROM "public"."outbox_stream" AS t WHERE t.stream_id = u.id AND t.owner_token = l.owner_token OFFSET 0) AS t),
    indexed AS (
        SELECT least((SELECT t.topic_key FROM "public"."outbox_stream" AS t WHERE t.status = 0 ORDER BY t.topic_key LIMIT 1),
                     (SELECT t.topic_key FROM "public"."outbox_stream" AS t WHERE t.status = 2 ORDER BY t.topic_key LIMIT 1)) AS topic_key
        UNION ALL
        SELECT least((SELECT t.topic_key FROM "public"."outbox_stream" AS t WHERE t.status = 0 AND t.topic_key > i.topic_key ORDER BY t.topic_key LIMIT 1),
                     (SELECT t.topic_key FROM "public"."outbox_stream" AS t WHERE t.status = 2 AND t.topic_key > i.topic_key ORDER BY t.topic_key LIMIT 1))
        FROM indexed AS i WHERE i.topic_key IS NOT NULL),
    topics AS MATERIALIZED (
        SELECT i.topic_key FROM indexed AS i WHERE i.topic_key IS NOT NULL
        UNION SELECT a.topic_key FROM arrived AS a
        UNION SELECT s.topic_key FROM served AS s),
    counted AS MATERIALIZED (
        SELECT t.topic_key,
               (SELECT count(*) FROM (
                   SELECT FROM (
                       SELECT r.stream_id, 0 AS last, r.head FROM "public"."outbox_stream" AS r
                       WHERE r.status = 0 AND r.topic_key = t.topic_key AND r.next_attempt_at <= moment
                       UNION ALL
                       SELECT s.stream_id, s.run_last, NULL FROM served AS s WHERE s.topic_key = t.topic_key) AS r
                   CROSS JOIN LATERAL (
                       SELECT WHERE r.head IS NOT NULL
                       UNION ALL
                       (SELECT FROM "public"."outbox_queue" AS q WHERE q.stream_id = r.stream_id AND q.seq > r.last LIMIT most)) AS q
                   LIMIT most) AS w) AS queued,
               coalesce((SELECT a.n FROM arrived AS a WHERE a.topic_key = t.topic_key), 0) AS arrived,
               (SELECT count(*) FROM (SELECT FROM "public"."outbox_stream" AS b WHERE b.status = 2 AND b.topic_key = t.topic_key LIMIT most) AS b) AS blocked,
               (SELECT coalesce(r.head, q.seq) FROM (
                   (SELECT r.stream_id, 0 AS last, r.head, 0 AS place FROM "public"."outbox_stream" AS r
                    WHERE r.status = 0 AND r.topic_key = t.topic_key ORDER BY r.next_attempt_at LIMIT 1)
                   UNION ALL
                   SELECT s.stream_id, s.run_last, NULL, 1 FROM served AS s WHERE s.topic_key = t.topic_key
                   UNION ALL
                   (SELECT b.stream_id, 0, NULL, 2 FROM "public"."outbox_stream" AS b WHERE b.status = 2 AND b.topic_key = t.topic_key LIMIT 1)) AS r
                LEFT JOIN LATERAL (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = r.stream_id AND q.seq > r.last ORDER BY q.seq LIMIT 1) AS q ON true
                WHERE r.head IS NOT NULL OR q.seq IS NOT NULL
                ORDER BY r.place LIMIT 1) AS head
        FROM topics AS t),
    named AS MATERIALIZED (
        SELECT c.*, n.seq,
               CASE WHEN c.queued + c.arrived > 0 THEN
                   least((SELECT s.next_attempt_at FROM "public"."outbox_state" AS s WHERE s.seq = n.seq), moment) ELSE moment END AS oldest
        FROM counted AS c
        CROSS JOIN LATERAL (SELECT coalesce(c.head, (SELECT a.seq FROM arrived AS a WHERE a.topic_key = c.topic_key)) AS seq) AS n)
    SELECT (SELECT o.topic::text FROM "public"."outbox" AS o WHERE o.seq = n.seq), least(n.queued + n.arrived, most),
           (extract(epoch FROM n.oldest) * 1000)::bigint, (extract(epoch FROM moment - n.oldest) * 1000)::bigint, n.blocked
    FROM named AS n
    WHERE n.seq IS NOT NULL AND (n.queued + n.arrived > 0 OR n.blocked > 0);
END
$outbox$;
