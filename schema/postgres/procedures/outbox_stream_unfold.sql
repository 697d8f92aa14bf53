-- Puts the messages that streams have in their rows into their queues. The caller has locked the rows.
CREATE OR REPLACE FUNCTION "public"."outbox_stream_unfold"(streams bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
BEGIN
    INSERT INTO "public"."outbox_queue" (stream_id, seq)
    SELECT t.stream_id, t.head FROM "public"."outbox_stream" AS t WHERE t.stream_id = ANY (streams) AND t.head IS NOT NULL;
    UPDATE "public"."outbox_stream" AS t SET head = NULL WHERE t.stream_id = ANY (streams) AND t.head IS NOT NULL;
END
$outbox$;
