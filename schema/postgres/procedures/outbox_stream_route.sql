-- Moves committed messages of a lane, up to most, from the arrivals to the queues of their streams, in order of arrival, and makes
-- streams that had none ready. One router at a time, so that what a publisher commits later cannot overtake what it committed
-- before. Messages of a locked stream stay, so that it waits for none. Returns whether there may be more. A claim that still wants
-- streams gets so many of those of its topics that had no messages before, the worker's share first: they are leased to taker at
-- once and returned in fresh, with their topics, and with their messages in alone where one is all. That spares an index
-- entry, a look-up and an update. Whether they are due is seen when they are claimed. The only message of a
-- stream stays in the stream's row. An old snapshot keeps the index entries of what was routed: so that they are not read
-- again each time, the place where routing begins moves on every thousand arrivals. A transaction that does not see
-- concurrent commits must write to the rows that it has locked: only then does a transaction that read before it fail and try
-- again.
CREATE OR REPLACE FUNCTION "public"."outbox_stream_route"(
    of_lane int, most int, wanted int, taker uuid, topics bigint[], share json,
    OUT more boolean, OUT fresh bigint[], OUT fresh_topics bigint[], OUT alone bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment  timestamptz := clock_timestamp();
    stale   boolean     := current_setting('transaction_isolation') <> 'read committed';
    since   bigint;
    noted   bigint;
    rows    tid[];
    places  bigint[];
    seqs    bigint[];
    ids     bigint[];
    keys    bigint[];
    known   bigint[];
    heads   bigint[];
    held    bigint[];
    busy    bigint[];
    folded  bigint[];
    kept    bigint[];
    share_low  int := coalesce((share->>'low')::int, 0);
    share_high int := coalesce((share->>'high')::int, 9999);
BEGIN
    more := false;
    SELECT r.low, r.high INTO since, noted FROM "public"."outbox_router" AS r WHERE r.lane = of_lane FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(n.ctid), array_agg(n.arrival_id), array_agg(n.seq), array_agg(n.stream_id), array_agg(n.topic_key) INTO rows, places, seqs, ids, keys
    FROM (SELECT a.ctid, a.* FROM "public"."outbox_arrival" AS a WHERE a.lane = of_lane AND a.arrival_id > since ORDER BY a.arrival_id LIMIT most) AS n;
    IF seqs IS NULL THEN
        RETURN;
    END IF;
    more := cardinality(seqs) = most;
    IF stale THEN
        UPDATE "public"."outbox_router" AS r SET turn = r.turn + 1 WHERE r.lane = of_lane;
    END IF;

    -- One that is being deleted is still visible here, and left for the next time. Only the holder of the lane's row inserts
    -- streams, so that one is there already only where the snapshot is older than its commit.
    BEGIN
        WITH arrived AS MATERIALIZED (
            SELECT n.*, (SELECT t.stream_id FROM "public"."outbox_stream" AS t WHERE t.stream_id = n.id) IS NOT NULL AS known
            FROM (SELECT n.id, min(n.seq) AS head, min(n.key) AS key, count(*) = 1 AS only FROM unnest(seqs, ids, keys) AS n(seq, id, key) GROUP BY n.id) AS n),
        added AS (
            INSERT INTO "public"."outbox_stream" (stream_id, topic_key, next_attempt_at, run_last, head, owner_token, status)
            SELECT n.id, n.key,
                   CASE WHEN n.first THEN moment ELSE greatest(moment, (SELECT s.next_attempt_at FROM "public"."outbox_state" AS s WHERE s.seq = n.head)) END,
                   n.head, CASE WHEN n.only AND (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = n.id LIMIT 1) IS NULL THEN n.head END, CASE WHEN n.first THEN taker END, CASE WHEN n.first THEN 1 ELSE 0 END
            FROM (SELECT a.*, coalesce(a.key = ANY (topics), false) AND row_number() OVER (
                             ORDER BY a.key = ANY (topics) DESC, abs(a.id % 10000) BETWEEN share_low AND share_high DESC) <= wanted AS first
                  FROM arrived AS a WHERE NOT a.known) AS n
            RETURNING stream_id, topic_key, head, status)
        SELECT n.known, n.heads, f.fresh, f.topics, f.alone, f.kept INTO known, heads, fresh, fresh_topics, alone, kept
        FROM (SELECT array_agg(a.id) AS known, array_agg(a.head) AS heads FROM arrived AS a WHERE a.known) AS n,
             (SELECT array_agg(a.stream_id) FILTER (WHERE a.status = 1) AS fresh, array_agg(a.topic_key) FILTER (WHERE a.status = 1) AS topics,
                     array_agg(a.head) FILTER (WHERE a.status = 1) AS alone, array_agg(a.head) FILTER (WHERE a.head IS NOT NULL) AS kept FROM added AS a) AS f;
    EXCEPTION WHEN unique_violation THEN
        RAISE serialization_failure USING MESSAGE = 'a stream was added after this transaction began';
    END;
    IF known IS NOT NULL THEN
        SELECT array_agg(t.stream_id), array_agg(n.head), array_agg(t.stream_id) FILTER (WHERE t.head IS NOT NULL) INTO held, heads, folded
        FROM unnest(known, heads) AS n(id, head)
        CROSS JOIN LATERAL (SELECT t.stream_id, t.head FROM "public"."outbox_stream" AS t WHERE t.stream_id = n.id FOR UPDATE SKIP LOCKED) AS t;
        busy := ARRAY(SELECT unnest(known) EXCEPT SELECT unnest(held));
        IF cardinality(busy) > 0 THEN
            SELECT array_agg(n.row), array_agg(n.place), array_agg(n.seq), array_agg(n.id) INTO rows, places, seqs, ids
            FROM unnest(rows, places, seqs, ids) AS n(row, place, seq, id) WHERE n.id <> ALL (busy);
            more := more AND seqs IS NOT NULL; -- what cannot be routed now is not read again at once
        END IF;
        IF folded IS NOT NULL THEN
            PERFORM "public"."outbox_stream_unfold"(folded);
        END IF;
    END IF;

    IF cardinality(seqs) > coalesce(cardinality(kept), 0) THEN
        INSERT INTO "public"."outbox_queue" (stream_id, seq)
        SELECT n.id, n.seq FROM unnest(seqs, ids) AS n(seq, id)
        WHERE n.seq NOT IN (SELECT unnest(kept)); -- so written, they are looked up in a hash table
    END IF;
    DELETE FROM "public"."outbox_arrival" AS a WHERE a.ctid = ANY (rows); -- no place is used again before the calling statement ends

    -- A ready stream may have a new head: a message with a lower seq that was committed late. A head whose state somebody has
    -- deleted has no due time, and changes nothing.
    IF held IS NOT NULL THEN
        UPDATE "public"."outbox_stream" AS t
        SET next_attempt_at = CASE t.status
            WHEN 0 THEN greatest(least(t.next_attempt_at, moment), coalesce(n.due, t.next_attempt_at)) ELSE t.next_attempt_at END
        FROM (SELECT h.id, (SELECT s.next_attempt_at FROM "public"."outbox_state" AS s
                            WHERE s.seq = h.head AND h.head = (
                                SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = h.id ORDER BY q.seq LIMIT 1)) AS due
              FROM unnest(held, heads) AS h(id, head)) AS n
        WHERE t.stream_id = ANY (ARRAY[n.id])
          AND (stale OR t.status + 0 = 0 AND t.next_attempt_at <> greatest(least(t.next_attempt_at, moment), coalesce(n.due, t.next_attempt_at)));
    END IF;

    -- Numbers are given before a commit. Whoever inserts arrivals holds this lock on the table from before it gets a number until
    -- others see its commit; so the writers are looked for first, and what they have left behind in a statement after that.
    IF NOT stale AND places[cardinality(places)] > noted + 1000 AND NOT EXISTS (
        SELECT FROM pg_locks AS l JOIN "public"."outbox_router" AS r ON l.virtualtransaction = ANY (r.writers)
        WHERE l.relation = '"public"."outbox_arrival"'::regclass AND r.lane = of_lane
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())) THEN
        UPDATE "public"."outbox_router" AS r
        SET low = noted, high = places[cardinality(places)],
            writers = ARRAY(SELECT l.virtualtransaction FROM pg_locks AS l
                            WHERE l.relation = '"public"."outbox_arrival"'::regclass AND l.mode = 'RowExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
                              AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
        WHERE r.lane = of_lane AND NOT EXISTS (SELECT FROM "public"."outbox_arrival" AS a WHERE a.lane = of_lane AND a.arrival_id > since AND a.arrival_id <= noted);
    END IF;
END
$outbox$;
