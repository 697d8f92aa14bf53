-- Frees streams whose runs have ended. Messages that have ended leave the queues; a stream becomes ready, or blocked if its head has
-- failed, and one without messages is deleted. A stream that is ready or blocked already is checked the same way.
-- It waits for locked streams, in order. The wait is short, because claiming and routing hold streams without waiting for anything.
DROP FUNCTION IF EXISTS "public"."outbox_stream_free"(bigint[]);
CREATE FUNCTION "public"."outbox_stream_free"(streams bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
    free   bigint[];
BEGIN
    PERFORM "public"."outbox_stream_lock"(streams);
    free := ARRAY( -- a statement of its own: it sees what was committed before the locks were given
        SELECT t.stream_id FROM (SELECT DISTINCT s FROM unnest(streams) AS s) AS n(id)
        CROSS JOIN LATERAL (SELECT t.stream_id, t.run_last FROM "public"."outbox_stream" AS t WHERE t.stream_id = n.id OFFSET 0) AS t
        WHERE (SELECT q.seq FROM "public"."outbox_queue" AS q
               WHERE q.stream_id = t.stream_id AND q.seq <= t.run_last
                 AND (SELECT s.status FROM "public"."outbox_state" AS s WHERE s.seq = q.seq) = 1
               ORDER BY q.seq LIMIT 1) IS NULL);

    DELETE FROM "public"."outbox_queue" AS q
    WHERE q.ctid = ANY (ARRAY(
        SELECT e.ctid FROM unnest(free) AS f(id)
        CROSS JOIN LATERAL (
            SELECT greatest(t.run_last, (SELECT h.seq FROM "public"."outbox_queue" AS h WHERE h.stream_id = f.id ORDER BY h.seq LIMIT 1)) AS last
            FROM "public"."outbox_stream" AS t WHERE t.stream_id = f.id OFFSET 0) AS t
        CROSS JOIN LATERAL (SELECT e.ctid, e.seq FROM "public"."outbox_queue" AS e WHERE e.stream_id = f.id AND e.seq <= t.last OFFSET 0) AS e
        WHERE coalesce((SELECT s.status = 2 OR s.status = 3 AND s.flags & 4 = 4 FROM "public"."outbox_state" AS s WHERE s.seq = e.seq), true)));

    DELETE FROM "public"."outbox_stream" AS t
    WHERE t.stream_id = ANY (free)
      AND (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id ORDER BY q.seq LIMIT 1) IS NULL;
    UPDATE "public"."outbox_stream" AS t
    SET owner_token = NULL,
        (status, next_attempt_at) = (
            SELECT CASE (SELECT s.status FROM "public"."outbox_state" AS s WHERE s.seq = h.seq) WHEN 3 THEN 2 ELSE 0 END,
                   greatest(CASE t.status WHEN 0 THEN least(t.next_attempt_at, moment) ELSE moment END,
                            (SELECT s.next_attempt_at FROM "public"."outbox_state" AS s WHERE s.seq = h.seq))
            FROM (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id ORDER BY q.seq LIMIT 1) AS h)
    WHERE t.stream_id = ANY (free);
END
$outbox$;
