-- Locks streams, in order, waiting where it must. Above READ COMMITTED it also writes to them, so that the transaction fails, and is
-- tried again, if a stream has changed since its snapshot.
DROP FUNCTION IF EXISTS "public"."outbox_stream_lock"(bigint[]);
CREATE FUNCTION "public"."outbox_stream_lock"(streams bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
BEGIN
    PERFORM FROM (SELECT DISTINCT s FROM unnest(streams) AS s ORDER BY s) AS n(id)
    CROSS JOIN LATERAL (SELECT FROM "public"."outbox_stream" AS t WHERE t.stream_id = n.id FOR UPDATE) AS t;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        UPDATE "public"."outbox_stream" AS t SET run_last = t.run_last WHERE t.stream_id = ANY (streams);
    END IF;
END
$outbox$;
