-- Gives the next positions to up to limit committed messages, in order of seq, and returns how many of each topic. The
-- counter is locked first, in a statement of its own. Then the highest pending seq is read, and nothing above it is taken,
-- so that a message inserted meanwhile cannot overtake one that the same producer committed before. An old snapshot keeps
-- the index entries of what was stamped: so that they are not read again each time, the place where stamping begins moves on
-- every thousand messages. There is nothing before it, unless numbers were given again (TRUNCATE … RESTART IDENTITY), or a
-- prepared transaction was committed after a restart, when the name of its writer was no longer known: so once a minute, and
-- for as long as there is something, stamping begins at the beginning.
-- Called as: SELECT * FROM "public"."outbox_log_stamp"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_stamp"(arg json) RETURNS TABLE (topic text, messages bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    stale   boolean     := current_setting('transaction_isolation') <> 'read committed';
    whole   boolean;
    since   bigint;
    noted   bigint;
    last    bigint;
    highest bigint;
BEGIN
    SELECT c.low, c.checked_at < moment - interval '1 minute' INTO since, whole FROM "public"."outbox_log_counter" AS c WHERE c.id = 1;
    IF NOT whole AND NOT EXISTS (SELECT FROM "public"."outbox_log_pending" AS p WHERE p.seq > since) THEN
        RETURN;
    END IF;
    SELECT c.position, c.low, c.high INTO last, since, noted FROM "public"."outbox_log_counter" AS c WHERE c.id = 1 FOR UPDATE;
    IF whole THEN
        UPDATE "public"."outbox_log_counter" AS c SET checked_at = moment
        WHERE c.id = 1 AND NOT EXISTS (SELECT FROM "public"."outbox_log_pending" AS p WHERE p.seq <= since);
        since := 0;
    END IF;
    SELECT max(p.seq) INTO highest FROM "public"."outbox_log_pending" AS p WHERE p.seq > since;

    RETURN QUERY
    WITH oldest AS MATERIALIZED (
        SELECT p.seq FROM "public"."outbox_log_pending" AS p WHERE p.seq > since AND p.seq <= highest ORDER BY p.seq LIMIT (arg->>'limit')::int),
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

    -- Whoever publishes holds this lock on the contents from before they get a seq until others see the commit; so the writers are
    -- looked for first, and what they have left behind in a statement after that.
    IF NOT stale AND highest > noted + 1000 AND NOT EXISTS (
        SELECT FROM pg_locks AS l JOIN "public"."outbox_log_counter" AS c ON l.virtualtransaction = ANY (c.writers)
        WHERE l.relation = '"public"."outbox"'::regclass AND c.id = 1
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())) THEN
        UPDATE "public"."outbox_log_counter" AS c
        SET low = noted, high = highest,
            writers = ARRAY(SELECT l.virtualtransaction FROM pg_locks AS l
                            WHERE l.relation = '"public"."outbox"'::regclass AND l.mode = 'RowExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
                              AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
        WHERE c.id = 1 AND NOT EXISTS (SELECT FROM "public"."outbox_log_pending" AS p WHERE p.seq > since AND p.seq <= noted);
    END IF;
END
$outbox$;
