-- Deletes up to limit messages that ended (2 done, 3 failed) longer ago than the given age; answers how many.
-- Those that are still needed (outbox_kept) are spared. Small batches that skip locked rows: nothing waits for it.
-- Rows are found by = ANY (ARRAY[key]): a plain = could also be merged, which lets the planner read the whole table in order
-- of the key, and it does where it believes that there are few rows.
-- Called as: SELECT * FROM "public"."outbox_purge"($1)
DROP FUNCTION IF EXISTS "public"."outbox_purge"(json);
CREATE FUNCTION "public"."outbox_purge"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    before timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
BEGIN
    RETURN QUERY
    WITH old AS MATERIALIZED (
        SELECT o.seq FROM "public"."outbox" AS o
        WHERE o.status >= 2 AND o.status = (arg->>'status')::int AND o.processed_at <= before
          AND (SELECT k.message_id FROM "public"."outbox_kept" AS k WHERE k.message_id = o.message_id LIMIT 1) IS NULL
        ORDER BY o.processed_at
        LIMIT (arg->>'limit')::int
        FOR UPDATE OF o SKIP LOCKED),
    gone AS (
        DELETE FROM "public"."outbox" AS o USING old WHERE o.seq = ANY (ARRAY[old.seq]) RETURNING 1)
    SELECT count(*) FROM gone;
END
$outbox$;
