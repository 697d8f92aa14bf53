-- Locks streams, in order, waiting where it must, and returns those that exist, with their run_last. Their messages are all
-- in their queues then. Above READ COMMITTED it also writes to them, so that the transaction fails, and is tried again, if a
-- stream has changed since its snapshot.
CREATE OR REPLACE FUNCTION "public"."outbox_stream_lock"(streams bigint[], OUT ids bigint[], OUT lasts bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    folded bigint[];
BEGIN
    SELECT array_agg(t.stream_id), array_agg(t.run_last), array_agg(t.stream_id) FILTER (WHERE t.head IS NOT NULL) INTO ids, lasts, folded
    FROM (SELECT DISTINCT s FROM unnest(streams) AS s ORDER BY s) AS n(id)
    CROSS JOIN LATERAL (SELECT t.stream_id, t.run_last, t.head FROM "public"."outbox_stream" AS t WHERE t.stream_id = n.id FOR UPDATE) AS t;
    IF folded IS NOT NULL THEN
        PERFORM "public"."outbox_stream_unfold"(folded);
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        UPDATE "public"."outbox_stream" AS t SET run_last = t.run_last WHERE t.stream_id = ANY (streams);
    END IF;
END
$outbox$;
