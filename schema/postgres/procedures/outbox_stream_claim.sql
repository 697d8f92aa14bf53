-- Chooses messages of ordered streams for a claim, which leases them: of each topic up to its quota, up to most in all and
-- room in bytes; with larger, the very first may be larger. Returns where their states are, which are locked, and what is left of
-- quotas, most and room.
-- The streams that have waited longest are taken; of each, the first due messages, in order and without a gap, up to a run,
-- and fewer if many streams are ready, so that many handlers can work at once. A locked message ends the run before it. A
-- stream from which nothing can be taken is tried again a little later. fresh are streams that the caller has leased to taker
-- while routing, which began at since, alone their only messages: they come after those that were ready before, and those that
-- are left over become ready. share is that of this worker among several, in thousands of virtual partitions: of the streams
-- that have waited longest, as many for each worker as are wanted, those between low and high come first, and with them those
-- that have waited for patience_ms. So each worker tends to get the same streams again, and none waits for a worker that does
-- not come.
CREATE OR REPLACE FUNCTION "public"."outbox_stream_claim"(
    taker uuid, topics bigint[], run int, INOUT quotas int[], INOUT most int, INOUT room bigint, INOUT larger boolean, share json,
    since timestamptz, fresh bigint[], fresh_topics bigint[], alone bigint[], OUT rows tid[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment  timestamptz := clock_timestamp();
    patient timestamptz;
    low     int;
    high    int;
    workers int;
    quota   int;
    others  int; -- how many streams that are not fresh
    depth   int;
    streams bigint[];
    lone    bigint[]; -- the message of each that is in no queue
    behind  bigint[];
    used    bigint[];
    taken   bigint[];
    found   tid[];
    of      bigint[];
    sizes   int[];
    bytes   bigint;
    whole   boolean;
BEGIN
    rows := '{}';
    IF share IS NOT NULL THEN
        patient := moment - (share->>'patience_ms')::bigint * interval '1 millisecond';
        low := (share->>'low')::int;
        high := (share->>'high')::int;
        workers := (share->>'workers')::int;
    END IF;
    FOR i IN 1 .. cardinality(topics) LOOP
        quota := least(quotas[i], most);
        CONTINUE WHEN quota <= 0;
        others := quota - (SELECT count(*) FROM unnest(fresh_topics) AS k WHERE k = topics[i]);
        IF others < quota THEN
            others := greatest(others, (SELECT count(*) FROM (
                SELECT FROM "public"."outbox_stream" AS t
                WHERE t.status = 0 AND t.topic_key = topics[i] AND t.next_attempt_at <= since LIMIT quota) AS t));
        END IF;
        IF workers IS NULL THEN
            SELECT array_agg(t.stream_id), array_agg(t.head) INTO streams, lone
            FROM (SELECT t.stream_id, t.head FROM "public"."outbox_stream" AS t
                  WHERE t.status = 0 AND t.topic_key = topics[i] AND t.next_attempt_at <= moment
                  ORDER BY t.next_attempt_at, t.stream_id
                  LIMIT others
                  FOR UPDATE SKIP LOCKED) AS t;
        ELSE
            SELECT array_agg(t.stream_id), array_agg(t.head) INTO streams, lone
            FROM (
                SELECT t.stream_id, t.head
                FROM (SELECT r.stream_id
                      FROM (SELECT t.stream_id, t.next_attempt_at FROM "public"."outbox_stream" AS t
                            WHERE t.status = 0 AND t.topic_key = topics[i] AND t.next_attempt_at <= moment
                            ORDER BY t.next_attempt_at, t.stream_id
                            LIMIT least(quota * workers, 1000)) AS r
                      ORDER BY r.next_attempt_at > patient AND abs(r.stream_id % 10000) NOT BETWEEN low AND high, r.next_attempt_at, r.stream_id) AS n
                CROSS JOIN LATERAL (
                    SELECT t.stream_id, t.head FROM "public"."outbox_stream" AS t
                    WHERE t.stream_id = n.stream_id AND t.status + 0 = 0 AND t.next_attempt_at <= moment
                    FOR UPDATE SKIP LOCKED) AS t
                LIMIT others) AS t;
        END IF;
        SELECT streams || array_agg(f.id), lone || array_agg(f.head) INTO streams, lone
        FROM (SELECT f.id, f.head FROM unnest(fresh, fresh_topics, alone) AS f(id, key, head)
              WHERE f.key = topics[i] LIMIT quota - coalesce(cardinality(streams), 0)) AS f;
        CONTINUE WHEN streams IS NULL;
        depth := least(run, (quota + cardinality(streams) - 1) / cardinality(streams));

        SELECT array_agg(h.seq), array_agg(h.ctid), array_agg(h.stream_id), array_agg(h.size), sum(h.size), bool_and(h.size IS NOT NULL)
        INTO taken, found, of, sizes, bytes, whole
        FROM (SELECT q.seq, s.ctid, n.stream_id, s.size
              FROM unnest(streams, lone) AS n(stream_id, head)
              LEFT JOIN LATERAL (
                  SELECT n.head AS seq WHERE n.head IS NOT NULL
                  UNION ALL
                  (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = n.stream_id AND n.head IS NULL ORDER BY q.seq LIMIT depth)) AS q ON true
              LEFT JOIN LATERAL (
                  SELECT s.ctid, s.size FROM "public"."outbox_state" AS s
                  WHERE s.seq = q.seq AND s.status + 0 = 5 AND s.next_attempt_at <= moment FOR UPDATE SKIP LOCKED) AS s ON true
              OFFSET 0) AS h;
        IF NOT whole OR bytes > room OR cardinality(taken) > quota THEN -- else all of them are taken
            WITH heads AS MATERIALIZED (
                SELECT n.*, row_number() OVER w AS place, bool_and(n.size IS NOT NULL) OVER w AS whole
                FROM unnest(taken, found, of, sizes) WITH ORDINALITY AS n(seq, row, stream_id, size, turn)
                WINDOW w AS (PARTITION BY n.stream_id ORDER BY n.turn)),
            fitting AS MATERIALIZED (
                SELECT f.* FROM (
                    SELECT h.*, sum(h.size) OVER w AS total, row_number() OVER w AS nth FROM heads AS h
                    WHERE h.whole WINDOW w AS (ORDER BY h.place, h.turn ROWS UNBOUNDED PRECEDING)) AS f
                WHERE f.nth <= quota AND (f.total <= room OR f.nth = 1 AND larger))
            SELECT array_agg(f.seq), array_agg(f.row), array_agg(f.stream_id), sum(f.size),
                   ARRAY(SELECT h.stream_id FROM heads AS h WHERE h.place = 1 AND NOT h.whole)
            INTO taken, found, of, bytes, behind FROM fitting AS f;
            IF cardinality(behind) > 0 THEN
                PERFORM "public"."outbox_stream_free"(behind);
                UPDATE "public"."outbox_stream" AS t
                SET next_attempt_at = greatest(t.next_attempt_at, moment + interval '50 milliseconds')
                WHERE t.stream_id = ANY (behind) AND t.status + 0 = 0;
            END IF;
        END IF;
        CONTINUE WHEN taken IS NULL;

        UPDATE "public"."outbox_stream" AS t
        SET status = 1, owner_token = taker, run_last = greatest(t.run_last, l.seq)
        FROM (SELECT n.id, n.seq
              FROM (SELECT u.id, max(u.seq) AS seq, count(*) AS messages FROM unnest(of, taken) AS u(id, seq) GROUP BY u.id) AS n
              WHERE n.messages > 1 OR n.id NOT IN (SELECT unnest(fresh))) AS l -- the row of a fresh one says already that its head is taken
        WHERE t.stream_id = ANY (ARRAY[l.id]);
        rows := rows || found;
        used := used || of;
        quotas[i] := quotas[i] - cardinality(taken);
        most := most - cardinality(taken);
        room := room - bytes;
        larger := false;
    END LOOP;
    behind := ARRAY(SELECT f FROM unnest(fresh) AS f EXCEPT SELECT u FROM unnest(used) AS u);
    IF cardinality(behind) > 0 THEN
        UPDATE "public"."outbox_stream" AS t SET status = 0, owner_token = NULL WHERE t.stream_id = ANY (behind) AND t.status + 0 = 1;
    END IF;
END
$outbox$;
