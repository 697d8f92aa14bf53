-- Resumes a blocked stream: its failed messages get all their attempts back, or with skip the first is skipped and stays
-- failed. Returns the number of messages: none if the stream is not blocked. It does not wait for a locked message: that is
-- an error, and the call is tried again.
-- Called as: SELECT * FROM "public"."outbox_stream_resume"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_stream_resume"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
    stream bigint      := (arg->>'stream_id')::bigint;
    skip   boolean     := (arg->>'skip')::boolean;
    failed bigint[];
BEGIN
    PERFORM "public"."outbox_stream_lock"(ARRAY[stream]);
    failed := ARRAY(
        SELECT q.seq
        FROM (SELECT t.run_last FROM "public"."outbox_stream" AS t WHERE t.stream_id = stream AND t.status + 0 = 2) AS t
        CROSS JOIN LATERAL (
            SELECT q.seq FROM "public"."outbox_queue" AS q
            WHERE q.stream_id = stream AND q.seq <= t.run_last
              AND (SELECT s.status + 0 = 3 AND s.flags & 4 = 0 FROM "public"."outbox_state" AS s WHERE s.seq = q.seq)
            ORDER BY q.seq
            LIMIT CASE WHEN skip THEN 1 END) AS q);
    PERFORM FROM unnest(failed) AS f CROSS JOIN LATERAL (SELECT FROM "public"."outbox_state" AS s WHERE s.seq = f FOR UPDATE NOWAIT) AS s;
    IF skip THEN
        UPDATE "public"."outbox_state" AS s SET flags = s.flags | 4 WHERE s.seq = ANY (failed);
    ELSE
        UPDATE "public"."outbox_state" AS s
        SET status = 5, retry_count = 0, next_attempt_at = moment, processed_at = NULL, dead_at = NULL, worker_id = NULL
        WHERE s.seq = ANY (failed);
    END IF;
    IF cardinality(failed) > 0 THEN
        PERFORM "public"."outbox_stream_free"(ARRAY[stream]);
    END IF;
    RETURN QUERY SELECT cardinality(failed)::bigint;
END
$outbox$;
