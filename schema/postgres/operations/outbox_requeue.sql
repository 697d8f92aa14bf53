-- Makes up to limit failed messages ready again with all their attempts; returns how many, until when they had failed, and
-- when the last of them had, unless they have ids. Both are arguments of the next call, so that a series of calls does not
-- requeue a message that has failed again since, and does not look at the same ones again.
-- Both filters are optional: a topic, and a list of message ids. Stages stay, unless start_over is set.
-- Called as: SELECT * FROM "public"."outbox_requeue"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_requeue"(arg json) RETURNS TABLE (affected bigint, until_us bigint, after_us bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment  timestamptz := clock_timestamp();
    until   timestamptz := coalesce('epoch'::timestamptz + (arg->>'until')::bigint * interval '1 microsecond', moment);
    after   timestamptz := coalesce('epoch'::timestamptz + (arg->>'after')::bigint * interval '1 microsecond', '-infinity');
    last    timestamptz;
    seqs    bigint[];
    streams bigint[];
BEGIN
    IF arg->'ids' IS NOT NULL THEN
        seqs := ARRAY(
            SELECT s.seq FROM "public"."outbox_state" AS s
            WHERE s.seq = ANY (ARRAY(SELECT o.seq FROM "public"."outbox" AS o
                                     WHERE o.message_id = ANY (ARRAY(SELECT e::uuid FROM json_array_elements_text(arg->'ids') AS e))))
              AND s.status + 0 = 3 AND s.processed_at <= until
              AND (arg->>'topic_key' IS NULL OR s.topic_key = (arg->>'topic_key')::bigint)
            ORDER BY s.seq
            LIMIT (arg->>'limit')::int
            FOR UPDATE SKIP LOCKED);
    ELSE
        SELECT coalesce(array_agg(f.seq), '{}'), max(f.dead_at) INTO seqs, last
        FROM (SELECT s.seq, s.dead_at FROM "public"."outbox_state" AS s
              WHERE s.dead_at >= after AND s.dead_at <= until AND (arg->>'topic_key' IS NULL OR s.topic_key = (arg->>'topic_key')::bigint)
              ORDER BY s.dead_at, s.seq
              LIMIT (arg->>'limit')::int
              FOR UPDATE SKIP LOCKED) AS f;
    END IF;
    UPDATE "public"."outbox_state" AS s
    SET status = CASE WHEN s.stream_id IS NULL THEN 0 ELSE 5 END, ready = s.stream_id IS NULL, flags = s.flags & ~4, retry_count = 0,
        next_attempt_at = moment, processed_at = NULL, dead_at = NULL, worker_id = NULL,
        stages = CASE WHEN (arg->>'start_over')::boolean THEN NULL ELSE s.stages END
    WHERE s.seq = ANY (seqs);

    -- A message that blocked its stream no longer does; one that was skipped had left its queue, and arrives again.
    streams := ARRAY(SELECT DISTINCT s.stream_id FROM "public"."outbox_state" AS s WHERE s.seq = ANY (seqs) AND s.stream_id IS NOT NULL);
    IF cardinality(streams) > 0 THEN
        PERFORM "public"."outbox_stream_lock"(streams);
        INSERT INTO "public"."outbox_arrival" (seq, stream_id, topic_key, lane)
        SELECT s.seq, s.stream_id, s.topic_key, s.stream_id & 3 FROM "public"."outbox_state" AS s
        WHERE s.seq = ANY (seqs) AND s.stream_id IS NOT NULL
          AND (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = s.stream_id AND q.seq = s.seq) IS NULL
        ORDER BY s.seq;
        PERFORM "public"."outbox_stream_free"(streams);
    END IF;
    RETURN QUERY SELECT cardinality(seqs)::bigint, (extract(epoch FROM until) * 1000000)::bigint, coalesce((extract(epoch FROM last) * 1000000)::bigint, 0);
END
$outbox$;
