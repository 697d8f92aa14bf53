-- Walks messages of any state from the newest to the oldest, at most scan of them before a mark, and returns those that match,
-- without payloads. So a search costs the same in each call, however few match. The last row, without a message id, says
-- where the walk ended (seq), how many it passed (in retry_count), and when the last of them was published (mark).
-- Called as: SELECT * FROM "public"."outbox_list"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_list"(arg json) RETURNS TABLE (
    seq bigint, message_id text, uuid text, topic text, correlation_id text, stream_key text, created_ms bigint, next_attempt_ms bigint,
    processed_ms bigint, status int, retry_count int, size int, processed_by text, error text, mark bigint, until bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    since  timestamptz := 'epoch'::timestamptz + (arg->>'from_us')::bigint * interval '1 microsecond';
    to_at  timestamptz := 'epoch'::timestamptz + (arg->>'to_us')::bigint * interval '1 microsecond';
    before bigint      := coalesce((arg->>'mark_seq')::bigint, 9223372036854775807);
    states int[]       := (SELECT array_agg(e::int) FROM json_array_elements_text(arg->'states') AS e);
    seqs   bigint[]    := ARRAY(SELECT o.seq FROM "public"."outbox" AS o WHERE o.seq < before ORDER BY o.seq DESC LIMIT (arg->>'scan')::int);
BEGIN
    RETURN QUERY
    SELECT o.seq, o.message_id::text, o.uuid, o.topic::text, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM s.next_attempt_at) * 1000)::bigint,
           (extract(epoch FROM s.processed_at) * 1000)::bigint, n.status, coalesce(s.retry_count, 0), coalesce(s.size, 0), w.name::text,
           left(e.error, (arg->>'cut')::int), NULL::bigint, NULL::bigint
    FROM unnest(seqs) AS k
    CROSS JOIN LATERAL (SELECT o.* FROM "public"."outbox" AS o WHERE o.seq = k LIMIT 1) AS o
    LEFT JOIN LATERAL (SELECT s.* FROM "public"."outbox_state" AS s WHERE s.seq = k LIMIT 1) AS s ON true
    CROSS JOIN LATERAL (SELECT (CASE s.status WHEN 5 THEN 0 ELSE coalesce(s.status, 4) END)::int AS status) AS n
    LEFT JOIN LATERAL (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = k AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS e ON true
    LEFT JOIN LATERAL (SELECT w.name FROM "public"."outbox_worker" AS w WHERE w.worker_id = s.worker_id LIMIT 1) AS w ON true
    WHERE (arg->>'topic' IS NULL OR o.topic = arg->>'topic')
      AND (arg->>'uuid' IS NULL OR o.uuid = arg->>'uuid')
      AND (arg->>'correlation_id' IS NULL OR o.correlation_id = arg->>'correlation_id')
      AND (arg->>'stream_key' IS NULL OR o.stream_key = arg->>'stream_key')
      AND (states IS NULL OR n.status = ANY (states))
      AND (since IS NULL OR o.created_at >= since) AND (to_at IS NULL OR o.created_at <= to_at)
      AND (arg->>'error' IS NULL OR position(arg->>'error' IN e.error) > 0)
      AND (s.seq IS NOT NULL OR EXISTS (SELECT FROM "public"."outbox_log" AS g WHERE g.message_id = o.message_id)
           OR EXISTS (SELECT FROM "public"."outbox_log_pending" AS g WHERE g.message_id = o.message_id));
    RETURN QUERY
    SELECT coalesce(seqs[cardinality(seqs)], 0), NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
           NULL::int, cardinality(seqs), NULL::int, NULL::text, NULL::text,
           coalesce((SELECT (extract(epoch FROM o.created_at) * 1000000)::bigint FROM "public"."outbox" AS o WHERE o.seq = seqs[cardinality(seqs)]), 0), 0::bigint;
END
$outbox$;
