-- Lists blocked streams, of one topic or of all, with the message that blocks each, since when and why, and how many
-- messages wait behind it, counted up to counted.
-- Called as: SELECT * FROM "public"."outbox_stream_list"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_stream_list"(arg json) RETURNS TABLE (
    topic text, stream_key text, message_id text, failed_ms bigint, error text, waiting bigint)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $outbox$
    SELECT o.topic::text, o.stream_key::text, o.message_id::text, (extract(epoch FROM h.processed_at) * 1000)::bigint,
           (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = h.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1),
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id AND q.seq <> h.seq
                                  LIMIT (arg->>'counted')::int) AS c)
    FROM (SELECT t.stream_id FROM "public"."outbox_stream" AS t
          WHERE t.status = 2 AND (arg->>'topic_key' IS NULL OR t.topic_key = (arg->>'topic_key')::bigint)
          ORDER BY t.topic_key, t.stream_id
          LIMIT (arg->>'limit')::int) AS t
    CROSS JOIN LATERAL (
        SELECT s.seq, s.processed_at
        FROM (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id ORDER BY q.seq) AS q
        CROSS JOIN LATERAL (SELECT s.* FROM "public"."outbox_state" AS s WHERE s.seq = q.seq AND s.status + 0 = 3 AND s.flags & 4 = 0 OFFSET 0) AS s
        LIMIT 1) AS h
    CROSS JOIN LATERAL (SELECT o.* FROM "public"."outbox" AS o WHERE o.seq = h.seq LIMIT 1) AS o
    WHERE arg->>'topic' IS NULL OR o.topic = arg->>'topic';
$outbox$;
