-- Deletes up to limit records of what operators did that are older than older_than_ms; returns how many. Numbers grow with
-- time, so the oldest come first.
-- Called as: SELECT * FROM "public"."outbox_audit_purge"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_audit_purge"(arg json) RETURNS TABLE (affected bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    until timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
    old   bigint[];
BEGIN
    old := ARRAY(
        SELECT f.audit_no
        FROM (SELECT a.audit_no, a.happened_at FROM "public"."outbox_audit" AS a ORDER BY a.audit_no
              LIMIT (arg->>'limit')::int FOR UPDATE SKIP LOCKED) AS f
        WHERE f.happened_at <= until);
    DELETE FROM "public"."outbox_audit" AS a WHERE a.audit_no = ANY (old);
    RETURN QUERY SELECT cardinality(old)::bigint;
END
$outbox$;
