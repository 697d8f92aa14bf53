-- Takes messages of a blocked stream under a lease, to be discarded: up to limit, due or not. Returns them and, under seq 0,
-- if the stream is blocked, the last that waits there now, which is an argument of the next call, so that a series of calls
-- does not take messages that arrived since. It does not wait for a locked message: that is an error, and the call is tried
-- again.
-- Called as: SELECT * FROM "public"."outbox_stream_take"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_stream_take"(arg json) RETURNS TABLE (seq bigint, until bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    stream bigint := (arg->>'stream_id')::bigint;
    taker  uuid   := (arg->>'owner')::uuid;
    last   bigint := (arg->>'until')::bigint;
    taken  bigint[];
BEGIN
    PERFORM "public"."outbox_stream_lock"(ARRAY[stream]);
    IF (SELECT t.status FROM "public"."outbox_stream" AS t WHERE t.stream_id = stream) IS DISTINCT FROM 2 THEN
        RETURN;
    END IF;
    IF last IS NULL THEN
        SELECT q.seq INTO last FROM "public"."outbox_queue" AS q WHERE q.stream_id = stream ORDER BY q.seq DESC LIMIT 1;
    END IF;
    RETURN QUERY SELECT 0::bigint, last;
    taken := ARRAY(
        SELECT q.seq FROM "public"."outbox_queue" AS q
        WHERE q.stream_id = stream AND q.seq <= last
          AND (SELECT s.status FROM "public"."outbox_state" AS s WHERE s.seq = q.seq) = 5
        ORDER BY q.seq
        LIMIT (arg->>'limit')::int);
    IF cardinality(taken) = 0 THEN
        RETURN;
    END IF;
    PERFORM FROM unnest(taken) AS k CROSS JOIN LATERAL (SELECT FROM "public"."outbox_state" AS s WHERE s.seq = k FOR UPDATE NOWAIT) AS s;
    UPDATE "public"."outbox_state" AS s SET status = 1, owner_token = taker WHERE s.seq = ANY (taken);
    UPDATE "public"."outbox_stream" AS t
    SET status = 1, owner_token = taker, run_last = greatest(t.run_last, taken[cardinality(taken)])
    WHERE t.stream_id = stream;
    INSERT INTO "public"."outbox_lease" (owner_token, worker_id, locked_until, seqs, streams)
    VALUES (taker, "public"."outbox_worker_number"(arg->>'worker'),
            clock_timestamp() + (arg->>'lease_ms')::bigint * interval '1 millisecond', taken, ARRAY[stream]);
    RETURN QUERY SELECT k, last FROM unnest(taken) AS k;
END
$outbox$;
