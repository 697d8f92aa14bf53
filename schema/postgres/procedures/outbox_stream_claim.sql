-- Takes messages of ordered streams for a claim: of each topic up to its quota, up to most in all and room in bytes; with
-- larger, the very first may be larger. Returns their seqs, and what is left of quotas, most and room. The streams that have
-- waited longest are taken; of each, the first due messages, in order and without a gap, up to a run, and fewer if many
-- streams are ready, so that many handlers can work at once. A locked message ends the run before it. A stream from which
-- nothing can be taken is tried again a little later.
DROP FUNCTION IF EXISTS "public"."outbox_stream_claim"(uuid, bigint[], int, int[], int, bigint, boolean);
CREATE FUNCTION "public"."outbox_stream_claim"(
    taker uuid, topics bigint[], run int, INOUT quotas int[], INOUT most int, INOUT room bigint, INOUT larger boolean, OUT seqs bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment  timestamptz := clock_timestamp();
    quota   int;
    depth   int;
    streams bigint[];
    behind  bigint[];
    taken   bigint[];
    of      bigint[];
    bytes   bigint;
BEGIN
    seqs := '{}';
    FOR i IN 1 .. cardinality(topics) LOOP
        quota := least(quotas[i], most);
        CONTINUE WHEN quota <= 0;
        streams := ARRAY(
            SELECT t.stream_id FROM "public"."outbox_stream" AS t
            WHERE t.status = 0 AND t.topic_key = topics[i] AND t.next_attempt_at <= moment
            ORDER BY t.next_attempt_at, t.stream_id
            LIMIT quota
            FOR UPDATE SKIP LOCKED);
        CONTINUE WHEN cardinality(streams) = 0;
        depth := least(run, (quota + cardinality(streams) - 1) / cardinality(streams));

        WITH heads AS MATERIALIZED (
            SELECT n.stream_id, n.turn, q.place, q.seq, s.size
            FROM unnest(streams) WITH ORDINALITY AS n(stream_id, turn)
            CROSS JOIN LATERAL (
                SELECT h.seq, row_number() OVER () AS place
                FROM (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = n.stream_id ORDER BY q.seq LIMIT depth) AS h) AS q
            LEFT JOIN LATERAL (
                SELECT s.size FROM "public"."outbox_state" AS s
                WHERE s.seq = q.seq AND s.status + 0 = 5 AND s.next_attempt_at <= moment FOR UPDATE SKIP LOCKED) AS s ON true),
        runs AS MATERIALIZED (
            SELECT h.*, bool_and(h.size IS NOT NULL) OVER (PARTITION BY h.turn ORDER BY h.place) AS whole FROM heads AS h),
        fitting AS MATERIALIZED (
            SELECT f.* FROM (
                SELECT r.*, sum(r.size) OVER w AS total, row_number() OVER w AS nth FROM runs AS r
                WHERE r.whole WINDOW w AS (ORDER BY r.place, r.turn ROWS UNBOUNDED PRECEDING)) AS f
            WHERE f.nth <= quota AND (f.total <= room OR f.nth = 1 AND larger))
        SELECT array_agg(f.seq), array_agg(f.stream_id), sum(f.size),
               ARRAY(SELECT n FROM unnest(streams) AS n
                     EXCEPT SELECT r.stream_id FROM runs AS r WHERE r.whole)
        INTO taken, of, bytes, behind FROM fitting AS f;
        IF cardinality(behind) > 0 THEN
            PERFORM "public"."outbox_stream_free"(behind);
            UPDATE "public"."outbox_stream" AS t
            SET next_attempt_at = greatest(t.next_attempt_at, moment + interval '50 milliseconds')
            WHERE t.stream_id = ANY (behind) AND t.status + 0 = 0;
        END IF;
        CONTINUE WHEN taken IS NULL;

        UPDATE "public"."outbox_state" AS s SET status = 1, owner_token = taker WHERE s.seq = ANY (taken);
        UPDATE "public"."outbox_stream" AS t
        SET status = 1, owner_token = taker, -- the run may be shorter: what is not out does not matter
            run_last = (SELECT greatest(t.run_last, max(h.seq)) FROM (
                SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = t.stream_id ORDER BY q.seq LIMIT depth) AS h)
        WHERE t.stream_id = ANY (of);
        seqs := seqs || taken;
        quotas[i] := quotas[i] - cardinality(taken);
        most := most - cardinality(taken);
        room := room - bytes;
        larger := false;
    END LOOP;
END
$outbox$;
