-- Gives the next positions to up to limit committed messages, in order of seq, and returns how many of each topic. The
-- counter is locked first, in a statement of its own. Then the highest pending seq is read, and nothing above it is taken,
-- so that a message inserted meanwhile cannot overtake one that the same producer committed before.
-- Called as: SELECT * FROM "public"."outbox_log_stamp"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_stamp"(arg json) RETURNS TABLE (topic text, messages bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    last    bigint;
    highest bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM "public"."outbox_log_pending") THEN
        RETURN;
    END IF;
    SELECT c.position INTO last FROM "public"."outbox_log_counter" AS c WHERE c.id = 1 FOR UPDATE;
    SELECT max(p.seq) INTO highest FROM "public"."outbox_log_pending" AS p;

    RETURN QUERY
    WITH oldest AS MATERIALIZED (
        SELECT p.seq FROM "public"."outbox_log_pending" AS p WHERE p.seq <= highest ORDER BY p.seq LIMIT (arg->>'limit')::int),
    taken AS (
        DELETE FROM "public"."outbox_log_pending" AS p USING oldest AS o WHERE p.seq = ANY (ARRAY[o.seq])
        RETURNING p.seq, p.topic, p.message_id),
    logged AS (
        INSERT INTO "public"."outbox_log" (position, topic, message_id)
        SELECT last + row_number() OVER (ORDER BY t.seq), t.topic, t.message_id FROM taken AS t
        RETURNING topic),
    counted AS (
        UPDATE "public"."outbox_log_counter" AS c SET position = last + (SELECT count(*) FROM taken) WHERE c.id = 1)
    SELECT l.topic::text, count(*) FROM logged AS l GROUP BY l.topic;
END
$outbox$;
