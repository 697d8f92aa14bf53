-- Deletes up to limit entries that ended (2 done, 3 failed) and were last seen longer ago than the given age, with their
-- messages in the queue, the oldest first; returns for each when it was last seen (in a column that keeps the name it has in
-- installed functions). The latest of these is the after of the next call, which begins there. Those still needed
-- (outbox_kept) are kept, and those last seen longer than within_ms ago, if it is given. In small batches that skip locked
-- rows. A message is checked again under its lock, because it may have been revived since. Messages are looked up by
-- subqueries, so that the planner has no choice; the 0 keeps it from the index of dead letters.
-- Called as: SELECT * FROM "public"."outbox_entry_purge"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_entry_purge"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    before timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
    since  timestamptz := greatest(clock_timestamp() - (arg->>'within_ms')::bigint * interval '1 millisecond',
                                   'epoch'::timestamptz + coalesce((arg->>'after')::bigint, 0) * interval '1 microsecond');
    ended  int         := (arg->>'status')::int;
    old    bigint[];
    queued bigint[];
BEGIN
    old := ARRAY(
        SELECT e.seq
        FROM "public"."outbox_entry" AS e
        LEFT JOIN LATERAL (
            SELECT o.seq, o.message_id FROM "public"."outbox" AS o WHERE o.message_id = e.queue_id LIMIT 1) AS o ON true
        LEFT JOIN LATERAL (
            SELECT s.status, s.processed_at FROM "public"."outbox_state" AS s WHERE s.seq = o.seq LIMIT 1) AS s ON true
        WHERE e.last_seen_at >= since AND e.last_seen_at <= before
          AND coalesce(s.status, 2) = ended AND coalesce(s.processed_at, before) <= before
          AND (SELECT k.message_id FROM "public"."outbox_kept" AS k WHERE k.message_id = o.message_id LIMIT 1) IS NULL
        ORDER BY e.last_seen_at
        LIMIT (arg->>'limit')::int
        FOR UPDATE OF e SKIP LOCKED);
    queued := ARRAY(SELECT (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = e.queue_id)
                    FROM "public"."outbox_entry" AS e WHERE e.seq = ANY (old) ORDER BY 1);

    WITH held AS MATERIALIZED (
        SELECT s.seq FROM unnest(queued) AS f(seq)
        CROSS JOIN LATERAL (
            SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = f.seq AND s.status + 0 = ended FOR UPDATE SKIP LOCKED) AS s)
    DELETE FROM "public"."outbox_state" AS s USING held WHERE s.seq = ANY (ARRAY[held.seq]);
    queued := ARRAY(SELECT q FROM unnest(queued) AS q WHERE (SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = q) IS NULL);
    DELETE FROM "public"."outbox_attempt" AS a WHERE a.seq = ANY (queued);
    DELETE FROM "public"."outbox" AS o WHERE o.seq = ANY (queued);

    RETURN QUERY
    DELETE FROM "public"."outbox_entry" AS e
    WHERE e.seq = ANY (old) AND (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = e.queue_id) IS NULL
    RETURNING (extract(epoch FROM e.last_seen_at) * 1000000)::bigint;
END
$outbox$;
