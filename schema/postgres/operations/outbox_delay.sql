-- Makes ready messages due at another time: at due_ms, or delay_ms from now; returns how many. The rows of streams are moved
-- too, which the head's time decides. Locked rows are skipped.
-- Called as: SELECT * FROM "public"."outbox_delay"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_delay"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    due     timestamptz := coalesce('epoch'::timestamptz + (arg->>'due_ms')::bigint * interval '1 millisecond',
                                    clock_timestamp() + (arg->>'delay_ms')::bigint * interval '1 millisecond');
    seqs    bigint[];
    streams bigint[];
BEGIN
    seqs := ARRAY(
        SELECT s.seq
        FROM (SELECT DISTINCT (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = e::uuid) AS seq
              FROM json_array_elements_text(arg->'ids') AS e ORDER BY 1) AS n
        CROSS JOIN LATERAL (SELECT s.seq FROM "public"."outbox_state" AS s
                            WHERE s.seq = n.seq AND (s.status + 0 = 0 OR s.status + 0 = 5) FOR UPDATE SKIP LOCKED) AS s);
    UPDATE "public"."outbox_state" AS s SET next_attempt_at = due FROM unnest(seqs) AS n(seq) WHERE s.seq = ANY (ARRAY[n.seq]);
    streams := array_remove(ARRAY(
        SELECT DISTINCT (SELECT s.stream_id FROM "public"."outbox_state" AS s WHERE s.seq = n) FROM unnest(seqs) AS n), NULL);
    IF cardinality(streams) > 0 THEN
        PERFORM "public"."outbox_stream_free"(streams);
    END IF;
    RETURN QUERY SELECT cardinality(seqs)::bigint;
END
$outbox$;
