-- Makes messages due whose join ended while they were locked: see outbox_join_advance. One that has been claimed since notices
-- the end of its join by itself. It waits for nobody: a note stays until its message can be locked, or is gone. It looks at a
-- thousand notes; of more, at any thousand, so that messages that stay locked do not hide the others. Nobody is woken: whoever
-- serves the topic finds the messages with its next claim.
CREATE OR REPLACE FUNCTION "public"."outbox_join_wake"() RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
    notes  bigint[];
    seqs   bigint[];
    free   bigint[];
BEGIN
    SELECT array_agg(w.wake_id), array_agg(w.seq) INTO notes, seqs
    FROM (SELECT w.wake_id, w.seq FROM "public"."outbox_wake" AS w ORDER BY w.wake_id
          OFFSET 1000 * floor(random() * ceil((SELECT count(*) FROM "public"."outbox_wake") / 1000.0))::bigint LIMIT 1000) AS w;
    free := ARRAY(
        SELECT t.seq FROM unnest(seqs) AS s
        CROSS JOIN LATERAL (SELECT t.seq FROM "public"."outbox_state" AS t WHERE t.seq = s FOR UPDATE SKIP LOCKED) AS t);
    UPDATE "public"."outbox_state" AS s SET next_attempt_at = moment
    WHERE s.seq = ANY (free) AND s.status + 0 = 0 AND s.next_attempt_at > moment;
    DELETE FROM "public"."outbox_wake" AS w
    USING (SELECT n.wake_id FROM "public"."outbox_wake" AS n
           WHERE n.wake_id = ANY (notes)
             AND (n.seq = ANY (free) OR (SELECT t.seq FROM "public"."outbox_state" AS t WHERE t.seq = n.seq) IS NULL)
           FOR UPDATE SKIP LOCKED) AS n
    WHERE w.wake_id = ANY (ARRAY[n.wake_id]);
END
$outbox$;
