-- The messages that a claim still holds. A worker asks when it lost the answer to that claim.
-- Called as: SELECT * FROM "public"."outbox_held"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_held"(arg json) RETURNS TABLE (seq bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $outbox$
    SELECT s.seq
    FROM "public"."outbox_lease" AS l
    CROSS JOIN LATERAL unnest(l.seqs) AS u(seq)
    CROSS JOIN LATERAL (SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = u.seq AND s.owner_token = l.owner_token LIMIT 1) AS s
    WHERE l.owner_token = (arg->>'owner')::uuid;
$outbox$;
