-- Gives back up to limit messages whose lease has expired, which counts an attempt; answers how many. Each is due again
-- after a random time up to its wait, so that one that ends its process does not take the same others with it each time.
-- Ended messages hold no lease and are never touched.
-- Rows are found by = ANY (ARRAY[key]): a plain = could also be merged, which lets the planner read the whole table in order
-- of the key, and it does where it believes that there are few rows.
-- Called as: SELECT * FROM "public"."outbox_reap"($1)
DROP FUNCTION IF EXISTS "public"."outbox_reap"(json);
CREATE FUNCTION "public"."outbox_reap"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
    waits  bigint[]    := ARRAY(SELECT w::bigint FROM json_array_elements_text(arg->'waits') AS w);
BEGIN
    RETURN QUERY
    WITH overdue AS MATERIALIZED (
        SELECT o.seq FROM "public"."outbox" AS o
        WHERE o.status = 1 AND o.locked_until < moment
        ORDER BY o.locked_until
        LIMIT (arg->>'limit')::int
        FOR UPDATE SKIP LOCKED),
    released AS (
        UPDATE "public"."outbox" AS o
        SET status = 0, owner_token = NULL, locked_until = NULL, retry_count = o.retry_count + 1,
            next_attempt_at = moment + random() * coalesce(waits[least(o.retry_count + 1, cardinality(waits))], 0) * interval '1 millisecond',
            last_error = 'the lease expired: the worker stopped or did not renew it in time'
        FROM overdue WHERE o.seq = ANY (ARRAY[overdue.seq])
        RETURNING 1)
    SELECT count(*) FROM released;
END
$outbox$;
