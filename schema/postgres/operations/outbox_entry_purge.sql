-- Deletes up to limit entries that ended (2 done, 3 failed) and were last seen longer ago than the given age, with their
-- messages in the queue; answers how many. Those that are still needed (outbox_kept) are spared.
-- Small batches that skip locked rows. A message is looked at again under its lock: it may have been revived meanwhile.
-- Called as: SELECT * FROM "public"."outbox_entry_purge"($1)
DROP FUNCTION IF EXISTS "public"."outbox_entry_purge"(json);
CREATE FUNCTION "public"."outbox_entry_purge"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    before timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
    ended  int         := (arg->>'status')::int;
    old    bigint[];
BEGIN
    old := ARRAY(
        SELECT e.seq
        FROM "public"."outbox_entry" AS e LEFT JOIN "public"."outbox" AS o ON o.message_id = e.queue_id
        WHERE e.last_seen_at <= before
          AND coalesce(o.status, 2) = ended AND coalesce(o.processed_at, before) <= before
          AND NOT EXISTS (SELECT FROM "public"."outbox_kept" AS k WHERE k.message_id = o.message_id)
        ORDER BY e.last_seen_at
        LIMIT (arg->>'limit')::int
        FOR UPDATE OF e SKIP LOCKED);

    WITH held AS MATERIALIZED (
        SELECT o.seq
        FROM "public"."outbox_entry" AS e INNER JOIN "public"."outbox" AS o ON o.message_id = e.queue_id
        WHERE e.seq = ANY (old) AND o.status = ended
        ORDER BY o.seq
        FOR UPDATE OF o SKIP LOCKED)
    DELETE FROM "public"."outbox" AS o USING held WHERE o.seq = held.seq;

    RETURN QUERY
    WITH gone AS (
        DELETE FROM "public"."outbox_entry" AS e
        WHERE e.seq = ANY (old) AND NOT EXISTS (SELECT FROM "public"."outbox" AS o WHERE o.message_id = e.queue_id)
        RETURNING 1)
    SELECT count(*) FROM gone;
END
$outbox$;
