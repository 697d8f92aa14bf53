-- Walks the dead letters in the order in which they failed, at most scan of them after a mark, and returns those that match, without
-- payloads. So a search costs the same in each call, however few match. The last row, without a message id, says where the
-- walk ended, how many it passed (in retry_count), and until when they had failed, which is an argument of the next call, so
-- that a walk ends although messages go on failing; processed_ms is that in microseconds.
-- Called as: SELECT * FROM "public"."outbox_dead_scan"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_dead_scan"(arg json) RETURNS TABLE (
    seq bigint, message_id text, uuid text, topic text, correlation_id text, stream_key text, created_ms bigint, next_attempt_ms bigint,
    processed_ms bigint, status int, retry_count int, size int, processed_by text, error text, mark bigint, until bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment   timestamptz := clock_timestamp();
    since    timestamptz := coalesce('epoch'::timestamptz + (arg->>'from_us')::bigint * interval '1 microsecond', '-infinity');
    to_at    timestamptz := least('epoch'::timestamptz + (arg->>'until')::bigint * interval '1 microsecond',
                                  'epoch'::timestamptz + (arg->>'to_us')::bigint * interval '1 microsecond', moment);
    mark_at  timestamptz := 'epoch'::timestamptz + (arg->>'mark')::bigint * interval '1 microsecond';
    mark_seq bigint      := (arg->>'mark_seq')::bigint;
    wanted   bigint      := (arg->>'topic_key')::bigint;
    most     int         := (arg->>'scan')::int;
    seqs     bigint[];
    ended    timestamptz[];
BEGIN
    IF (arg->>'newest')::boolean THEN
        SELECT array_agg(d.seq), array_agg(d.dead_at) INTO seqs, ended
        FROM (SELECT s.seq, s.dead_at FROM "public"."outbox_state" AS s
              WHERE s.dead_at >= since AND s.dead_at <= to_at
                AND (s.dead_at, s.seq) < (coalesce(mark_at, 'infinity'), coalesce(mark_seq, 0))
              ORDER BY s.dead_at DESC, s.seq DESC
              LIMIT most) AS d;
    ELSE
        SELECT array_agg(d.seq), array_agg(d.dead_at) INTO seqs, ended
        FROM (SELECT s.seq, s.dead_at FROM "public"."outbox_state" AS s
              WHERE s.dead_at >= since AND s.dead_at <= to_at
                AND (s.dead_at, s.seq) > (coalesce(mark_at, '-infinity'), coalesce(mark_seq, 0))
              ORDER BY s.dead_at, s.seq
              LIMIT most) AS d;
    END IF;

    RETURN QUERY
    SELECT s.seq, o.message_id::text, o.uuid, o.topic::text, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM s.next_attempt_at) * 1000)::bigint,
           (extract(epoch FROM s.processed_at) * 1000)::bigint, s.status::int, s.retry_count, s.size, w.name::text,
           left(e.error, (arg->>'cut')::int), (extract(epoch FROM s.processed_at) * 1000000)::bigint, (extract(epoch FROM to_at) * 1000000)::bigint
    FROM unnest(seqs) AS k
    CROSS JOIN LATERAL (SELECT s.* FROM "public"."outbox_state" AS s WHERE s.seq = k AND s.status + 0 = 3 LIMIT 1) AS s
    CROSS JOIN LATERAL (SELECT o.* FROM "public"."outbox" AS o WHERE o.seq = k AND (wanted IS NULL OR s.topic_key = wanted) LIMIT 1) AS o
    LEFT JOIN LATERAL (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = k AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS e ON true
    LEFT JOIN LATERAL (SELECT w.name FROM "public"."outbox_worker" AS w WHERE w.worker_id = s.worker_id LIMIT 1) AS w ON true
    WHERE (arg->>'topic' IS NULL OR o.topic = arg->>'topic')
      AND (arg->>'uuid' IS NULL OR o.uuid = arg->>'uuid')
      AND (arg->>'correlation_id' IS NULL OR o.correlation_id = arg->>'correlation_id')
      AND (arg->>'stream_key' IS NULL OR o.stream_key = arg->>'stream_key')
      AND (arg->>'error' IS NULL OR position(arg->>'error' IN e.error) > 0);
    RETURN QUERY
    SELECT coalesce(seqs[cardinality(seqs)], 0), NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
           (extract(epoch FROM to_at) * 1000000)::bigint, NULL::int, coalesce(cardinality(seqs), 0), NULL::int, NULL::text, NULL::text,
           coalesce((extract(epoch FROM ended[cardinality(ended)]) * 1000000)::bigint, 0), (extract(epoch FROM to_at) * 1000000)::bigint;
END
$outbox$;
