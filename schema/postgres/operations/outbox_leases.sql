-- Leases, those that run longest first, with their worker and the topics of what they hold. Of each lease the first sample
-- messages are looked at.
-- Called as: SELECT * FROM "public"."outbox_leases"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_leases"(arg json) RETURNS TABLE (owner_token text, worker text, until_ms bigint, topic text, messages bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT l.owner_token::text, w.name::text, (extract(epoch FROM l.locked_until) * 1000)::bigint, o.topic::text, coalesce(k.messages, 0)
    FROM (SELECT l.* FROM "public"."outbox_lease" AS l ORDER BY l.locked_until DESC, l.owner_token DESC LIMIT (arg->>'limit')::int) AS l
    LEFT JOIN LATERAL (SELECT w.name FROM "public"."outbox_worker" AS w WHERE w.worker_id = l.worker_id LIMIT 1) AS w ON true
    LEFT JOIN LATERAL (
        SELECT s.topic_key, count(*) AS messages, min(s.seq) AS first
        FROM unnest(l.seqs[1:(arg->>'sample')::int]) AS q
        CROSS JOIN LATERAL (SELECT s.* FROM "public"."outbox_state" AS s WHERE s.seq = q AND s.owner_token = l.owner_token LIMIT 1) AS s
        GROUP BY s.topic_key) AS k ON true
    LEFT JOIN LATERAL (SELECT o.topic FROM "public"."outbox" AS o WHERE o.seq = k.first LIMIT 1) AS o ON true;
END
$outbox$;
