-- Moves committed messages, up to most, from the arrivals to the queues of their streams, in order of seq, and makes streams
-- that had none ready. One router at a time, so that what a publisher commits later cannot overtake what it committed
-- before. Messages of a locked stream stay; it waits for nobody. Returns whether there may be more. A transaction that does
-- not see concurrent commits must write to the rows that it has locked: only then does a transaction that read before it
-- fail and try again.
DROP FUNCTION IF EXISTS "public"."outbox_stream_route"(int);
CREATE FUNCTION "public"."outbox_stream_route"(most int) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment  timestamptz := clock_timestamp();
    stale   boolean     := current_setting('transaction_isolation') <> 'read committed';
    seqs    bigint[];
    ids     bigint[];
    keys    bigint[];
    streams bigint[];
    more    boolean;
BEGIN
    PERFORM FROM "public"."outbox_router" AS r WHERE r.id = 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT array_agg(n.seq), array_agg(n.stream_id), array_agg(n.topic_key) INTO seqs, ids, keys
    FROM (SELECT a.seq, a.stream_id, a.topic_key FROM "public"."outbox_arrival" AS a ORDER BY a.seq LIMIT most) AS n;
    IF seqs IS NULL THEN
        RETURN false;
    END IF;
    more := cardinality(seqs) = most;
    IF stale THEN
        UPDATE "public"."outbox_router" AS r SET turn = r.turn + 1 WHERE r.id = 1;
    END IF;

    -- A stream that is being deleted is still visible here, and left for the next time.
    INSERT INTO "public"."outbox_stream" (stream_id, topic_key, next_attempt_at)
    SELECT DISTINCT ON (n.id) n.id, n.key, moment FROM unnest(ids, keys) AS n(id, key)
    WHERE (SELECT t.stream_id FROM "public"."outbox_stream" AS t WHERE t.stream_id = n.id) IS NULL
    ON CONFLICT (stream_id) DO NOTHING;
    WITH arrived AS MATERIALIZED (
        SELECT n.seq, n.id, row_number() OVER (PARTITION BY n.id ORDER BY n.seq) AS nth FROM unnest(seqs, ids) AS n(seq, id)),
    first AS MATERIALIZED (
        SELECT a.seq, a.id, CASE WHEN a.nth = 1 THEN
                   (SELECT t.stream_id FROM "public"."outbox_stream" AS t WHERE t.stream_id = a.id FOR UPDATE SKIP LOCKED) END AS locked
        FROM arrived AS a),
    held AS (SELECT f.seq, f.id, f.locked, max(f.locked) OVER (PARTITION BY f.id) AS held FROM first AS f)
    SELECT array_agg(h.seq), array_agg(h.id), array_agg(h.locked) FILTER (WHERE h.locked IS NOT NULL) INTO seqs, ids, streams
    FROM held AS h WHERE h.held IS NOT NULL;

    INSERT INTO "public"."outbox_queue" (stream_id, seq) SELECT n.id, n.seq FROM unnest(seqs, ids) AS n(seq, id);
    DELETE FROM "public"."outbox_arrival" AS a WHERE a.seq = ANY (seqs);

    -- A ready stream may have a new head: a message with a lower seq that was committed late.
    UPDATE "public"."outbox_stream" AS t
    SET next_attempt_at = CASE t.status WHEN 0 THEN (
            SELECT greatest(least(t.next_attempt_at, moment), s.next_attempt_at) FROM "public"."outbox_state" AS s
            WHERE s.seq = (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id ORDER BY q.seq LIMIT 1))
        ELSE t.next_attempt_at END
    WHERE t.stream_id = ANY (streams)
      AND (stale OR t.status + 0 = 0 AND t.next_attempt_at IS DISTINCT FROM (
               SELECT greatest(least(t.next_attempt_at, moment), s.next_attempt_at) FROM "public"."outbox_state" AS s
               WHERE s.seq = (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id ORDER BY q.seq LIMIT 1)));
    RETURN more;
END
$outbox$;
