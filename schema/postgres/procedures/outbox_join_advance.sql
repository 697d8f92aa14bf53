-- Adds ended steps to the counters of joins, ends those whose verdict has fallen, and makes due the messages that wait for
-- them. Answers with the joins that have ended, once for each topic of theirs that was woken.
-- Joins are locked first, in order and in a statement of its own: the next one then sees what was committed before the lock
-- was given. NO KEY, because an attaching transaction holds the key. Ended joins count no more (JOIN-042).
DROP FUNCTION IF EXISTS "public"."outbox_join_advance"(uuid[], int[], int[]);
CREATE FUNCTION "public"."outbox_join_advance"(joins uuid[], done int[], dead int[]) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    ended   uuid[];
    waiting bigint[];
BEGIN
    PERFORM FROM "public"."outbox_join" AS j WHERE j.join_id = ANY (joins) ORDER BY j.join_id FOR NO KEY UPDATE;

    UPDATE "public"."outbox_join" AS j
    SET completed_steps = j.completed_steps + d.done, failed_steps = j.failed_steps + d.dead, last_updated_at = moment
    FROM (SELECT unnest(joins) AS id, unnest(done) AS done, unnest(dead) AS dead) AS d
    WHERE j.join_id = d.id AND j.status = 0;

    WITH over AS (
        UPDATE "public"."outbox_join" AS j
        SET status = j.verdict, last_updated_at = moment
        WHERE j.join_id = ANY (joins) AND j.status = 0 AND j.verdict <> 0
        RETURNING j.join_id)
    SELECT array_agg(o.join_id) INTO ended FROM over AS o;
    IF ended IS NULL THEN
        RETURN;
    END IF;

    SELECT array_agg(l.seq) INTO waiting
    FROM (SELECT o.seq
          FROM "public"."outbox_join_wait" AS w INNER JOIN "public"."outbox" AS o ON o.message_id = w.message_id
          WHERE w.join_id = ANY (ended) AND o.status = 0
          ORDER BY o.seq
          FOR UPDATE OF o) AS l;
    UPDATE "public"."outbox" AS o SET next_attempt_at = moment WHERE o.seq = ANY (waiting) AND o.status = 0;

    RETURN QUERY
    SELECT DISTINCT 0::bigint, j.join_id::text, o.topic::text, j.status::int, j.expected_steps, j.completed_steps, j.failed_steps
    FROM "public"."outbox_join" AS j
    LEFT JOIN "public"."outbox_join_wait" AS w ON w.join_id = j.join_id
    LEFT JOIN "public"."outbox" AS o ON o.message_id = w.message_id
    WHERE j.join_id = ANY (ended);
END
$outbox$;
