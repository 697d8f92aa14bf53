-- Ends messages that nobody holds: ready ones as failed, which counts them in their joins; or, with replaced, failed ones as
-- done, because another message has taken the place of each: those were counted when they failed. The reason becomes an
-- attempt with outcome 5. Returns a row with the seq of each and, under seq 0, the joins that have ended. A message of a
-- stream leaves its queue, so that those behind it go on. Its arrival is deleted last, because a router may be waiting for
-- it with its stream locked; one that it has queued after all leaves as soon as it is the first. Locked messages are skipped.
-- Called as: SELECT * FROM "public"."outbox_end"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_end"(arg json) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment   timestamptz := clock_timestamp();
    worker   int         := "public"."outbox_worker_number"(arg->>'worker');
    replaced boolean     := coalesce((arg->>'replaced')::boolean, false);
    seqs     bigint[];
    steps    uuid[];
    streams  bigint[];
BEGIN
    seqs := ARRAY(
        SELECT s.seq
        FROM (SELECT DISTINCT (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = e::uuid) AS seq
              FROM json_array_elements_text(arg->'ids') AS e ORDER BY 1) AS n
        CROSS JOIN LATERAL (SELECT s.seq FROM "public"."outbox_state" AS s
                            WHERE s.seq = n.seq AND CASE WHEN replaced THEN s.status + 0 = 3 ELSE s.status + 0 = 0 OR s.status + 0 = 5 END
                            FOR UPDATE SKIP LOCKED) AS s);
    WITH ended AS (
        UPDATE "public"."outbox_state" AS s
        SET status = CASE WHEN replaced THEN 2 ELSE 3 END, ready = false, processed_at = moment,
            dead_at = CASE WHEN NOT replaced THEN moment END, worker_id = worker,
            flags = CASE WHEN s.stream_id IS NULL THEN s.flags ELSE s.flags | 4 END
        FROM unnest(seqs) AS n(seq) WHERE s.seq = ANY (ARRAY[n.seq])
        RETURNING s.seq, s.retry_count, s.flags, s.stream_id),
    noted AS (
        INSERT INTO "public"."outbox_attempt" (seq, happened_at, worker_id, attempt, outcome, error)
        SELECT e.seq, moment, worker, e.retry_count, 5, arg->>'reason' FROM ended AS e)
    SELECT array_agg((SELECT o.message_id FROM "public"."outbox" AS o WHERE o.seq = e.seq)) FILTER (WHERE e.flags & 1 = 1),
           array_agg(DISTINCT e.stream_id) FILTER (WHERE e.stream_id IS NOT NULL)
    INTO steps, streams
    FROM ended AS e;
    RETURN QUERY
    SELECT n, (SELECT o.message_id::text FROM "public"."outbox" AS o WHERE o.seq = n), NULL::text, NULL::int, NULL::int, NULL::int, NULL::int
    FROM unnest(seqs) AS n;
    IF steps IS NOT NULL AND NOT replaced THEN
        RETURN QUERY SELECT * FROM "public"."outbox_join_count"('{}', steps);
    END IF;
    IF streams IS NOT NULL THEN
        PERFORM "public"."outbox_stream_lock"(streams);
        DELETE FROM "public"."outbox_queue" AS q
        USING (SELECT n AS seq, (SELECT s.stream_id FROM "public"."outbox_state" AS s WHERE s.seq = n) AS stream_id FROM unnest(seqs) AS n) AS e
        WHERE q.stream_id = ANY (ARRAY[e.stream_id]) AND q.seq = ANY (ARRAY[e.seq]);
        PERFORM "public"."outbox_stream_free"(streams);
        DELETE FROM "public"."outbox_arrival" AS a
        WHERE a.ctid = ANY (ARRAY( -- in the order in which routing deletes
            SELECT a.ctid FROM "public"."outbox_router" AS r
            CROSS JOIN LATERAL (SELECT a.ctid, a.seq FROM "public"."outbox_arrival" AS a WHERE a.lane = r.lane AND a.arrival_id > r.low OFFSET 0) AS a
            WHERE (a.seq IN (SELECT unnest(seqs))) IS TRUE)); -- so written, they are looked up in a hash table
    END IF;
END
$outbox$;
