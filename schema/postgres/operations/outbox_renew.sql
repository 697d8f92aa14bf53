-- Extends the leases of held messages from now, by the database's clock, and answers with the receipts whose leases it did
-- not extend: refused, or held but locked. A row that a handler's own transaction has settled is locked until that
-- commits: it is passed over, so that one long transaction does not keep the others' leases from being renewed.
-- Only a row in progress has an owner; status is not tested, which would invite the planner to the index of leases.
-- Rows are found by = ANY (ARRAY[key]): a plain = could also be merged, which lets the planner read the whole table in order
-- of the key, and it does where it believes that there are few rows.
-- Called as: SELECT * FROM "public"."outbox_renew"($1)
DROP FUNCTION IF EXISTS "public"."outbox_renew"(json);
CREATE FUNCTION "public"."outbox_renew"(arg json) RETURNS TABLE (seq bigint, owner_token text, held boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    until timestamptz := clock_timestamp() + (arg->>'lease_ms')::bigint * interval '1 millisecond';
BEGIN
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT s.seq::bigint AS seq, g.owner
        FROM json_to_recordset(arg->'groups') AS g(owner uuid, seqs json)
        CROSS JOIN LATERAL json_array_elements_text(g.seqs) AS s(seq)
        ORDER BY 1),
    free AS MATERIALIZED (
        SELECT o.seq, w.owner
        FROM wanted AS w INNER JOIN "public"."outbox" AS o ON o.seq = ANY (ARRAY[w.seq]) AND o.owner_token = w.owner
        FOR UPDATE OF o SKIP LOCKED),
    renewed AS (
        UPDATE "public"."outbox" AS o SET locked_until = until FROM free AS f WHERE o.seq = ANY (ARRAY[f.seq])),
    others AS (
        SELECT w.seq, w.owner FROM wanted AS w
        WHERE (SELECT count(*) FROM wanted) > (SELECT count(*) FROM free) -- else there are none
        EXCEPT SELECT f.seq, f.owner FROM free AS f)
    SELECT s.seq, s.owner::text, (SELECT o.seq FROM "public"."outbox" AS o WHERE o.seq = s.seq AND o.owner_token = s.owner) IS NOT NULL
    FROM others AS s;
END
$outbox$;
