-- Frees streams whose runs have ended. ended has, for each as far as it goes, a message that has been acknowledged, or NULL: a
-- stream with no other is deleted without a look at its queue. Messages that have ended leave the queues; a stream becomes ready, or
-- blocked if its head has failed and is not to be skipped, and one without messages is deleted. A stream that is ready or
-- blocked already is checked the same way. It waits for locked streams, in order, but those with one message first: a
-- deadlock of the two kinds is tried again. The wait is short, because claiming and routing hold streams without waiting for
-- anything.
DROP FUNCTION IF EXISTS "public"."outbox_stream_free"(bigint[]);
CREATE OR REPLACE FUNCTION "public"."outbox_stream_free"(streams bigint[], ended bigint[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
    ids    bigint[];
    lasts  bigint[];
BEGIN
    IF cardinality(ended) > 0 THEN
        WITH emptied AS (
            DELETE FROM "public"."outbox_stream" AS t
            USING (SELECT n.* FROM unnest(streams, ended) AS n(id, seq) ORDER BY n.id) AS n
            WHERE t.stream_id = ANY (ARRAY[n.id]) AND t.head = n.seq
            RETURNING t.stream_id)
        SELECT array_agg(l.id) INTO streams
        FROM (SELECT s FROM unnest(streams) AS s EXCEPT SELECT e.stream_id FROM emptied AS e) AS l(id);
        IF streams IS NULL THEN
            RETURN;
        END IF;
    END IF;
    SELECT l.* INTO ids, lasts FROM "public"."outbox_stream_lock"(streams) AS l;
    WITH looked AS MATERIALIZED ( -- a statement of its own: it sees what was committed before the locks were given
        SELECT t.stream_id, r.gone,
               coalesce(r.head, (SELECT q.seq FROM "public"."outbox_queue" AS q
                                 WHERE q.stream_id = t.stream_id AND q.seq > t.up_to ORDER BY q.seq LIMIT 1)) AS head
        FROM (SELECT n.id AS stream_id, greatest(n.last, (
                  SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = n.id ORDER BY q.seq LIMIT 1)) AS up_to
              FROM unnest(ids, lasts) AS n(id, last) OFFSET 0) AS t
        CROSS JOIN LATERAL (
            SELECT array_agg(e.ctid) FILTER (WHERE e.is_over) AS gone, min(e.seq) FILTER (WHERE NOT e.is_over) AS head, bool_or(e.status = 1) AS held
            FROM (SELECT q.ctid, q.seq, s.status, coalesce(s.status = 2 OR s.status = 3 AND s.flags & 4 = 4, true) AS is_over
                  FROM "public"."outbox_queue" AS q
                  LEFT JOIN LATERAL (SELECT s.status, s.flags FROM "public"."outbox_state" AS s WHERE s.seq = q.seq OFFSET 0) AS s ON true
                  WHERE q.stream_id = t.stream_id AND q.seq <= t.up_to) AS e) AS r
        WHERE r.held IS NOT TRUE),
    queued AS (
        DELETE FROM "public"."outbox_queue" AS q WHERE q.ctid = ANY (ARRAY(SELECT unnest(l.gone) FROM looked AS l))),
    emptied AS (
        DELETE FROM "public"."outbox_stream" AS t WHERE t.stream_id = ANY (ARRAY(SELECT l.stream_id FROM looked AS l WHERE l.head IS NULL)))
    UPDATE "public"."outbox_stream" AS t
    SET owner_token = NULL,
        status = CASE WHEN s.status = 3 AND s.flags & 4 = 0 THEN 2 ELSE 0 END,
        next_attempt_at = greatest(CASE t.status WHEN 0 THEN least(t.next_attempt_at, moment) ELSE moment END, s.next_attempt_at)
    FROM looked AS l
    LEFT JOIN LATERAL (SELECT s.status, s.flags, s.next_attempt_at FROM "public"."outbox_state" AS s WHERE s.seq = l.head OFFSET 0) AS s ON true
    WHERE t.stream_id = ANY (ARRAY[l.stream_id]) AND l.head IS NOT NULL;
END
$outbox$;
