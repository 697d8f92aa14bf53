-- Extends leases from now, by the database's clock: one row per claim. Returns the receipts whose leases it did not extend:
-- refused, or held under a lease that is locked and was skipped. A message that a handler's own transaction has settled is
-- held until that commits.
-- Called as: SELECT * FROM "public"."outbox_renew"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_renew"(arg json) RETURNS TABLE (seq bigint, owner_token text, held boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    until timestamptz := clock_timestamp() + (arg->>'lease_ms')::bigint * interval '1 millisecond';
BEGIN
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT g.owner, g.seqs FROM json_to_recordset(arg->'groups') AS g(owner uuid, seqs json)),
    free AS MATERIALIZED (
        SELECT l.owner_token FROM wanted AS w CROSS JOIN LATERAL (
            SELECT l.owner_token FROM "public"."outbox_lease" AS l WHERE l.owner_token = w.owner FOR UPDATE SKIP LOCKED) AS l),
    renewed AS (
        UPDATE "public"."outbox_lease" AS l SET locked_until = until FROM free AS f WHERE l.owner_token = ANY (ARRAY[f.owner_token])),
    receipts AS MATERIALIZED (
        SELECT s.seq::bigint AS seq, w.owner, (SELECT f.owner_token FROM free AS f WHERE f.owner_token = w.owner) IS NOT NULL AS extended
        FROM wanted AS w CROSS JOIN LATERAL json_array_elements_text(w.seqs) AS s(seq))
    SELECT r.seq, r.owner::text, h.seq IS NOT NULL
    FROM receipts AS r
    LEFT JOIN LATERAL (SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = r.seq AND s.owner_token = r.owner LIMIT 1) AS h ON true
    WHERE NOT r.extended OR h.seq IS NULL;
END
$outbox$;
