-- Lists workers, those that came last first, with the number of claims and messages that each holds, and until when. Of each
-- claim, what it took is counted, whether it has ended since or not. A worker may have several numbers, and so several rows.
-- Called as: SELECT * FROM "public"."outbox_workers"($1)
DROP FUNCTION IF EXISTS "public"."outbox_workers"(json);
CREATE FUNCTION "public"."outbox_workers"(arg json) RETURNS TABLE (name text, started_ms bigint, claims bigint, messages bigint, until_ms bigint)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET jit = off
AS $outbox$
    WITH claims AS MATERIALIZED (
        SELECT l.worker_id, count(*) AS claims, sum(cardinality(l.seqs))::bigint AS messages, max(l.locked_until) AS until
        FROM (SELECT l.* FROM "public"."outbox_lease" AS l WHERE l.locked_until > clock_timestamp() ORDER BY l.locked_until LIMIT 10000) AS l
        GROUP BY l.worker_id)
    SELECT w.name::text, (extract(epoch FROM w.started_at) * 1000)::bigint, coalesce(c.claims, 0), coalesce(c.messages, 0),
           (extract(epoch FROM c.until) * 1000)::bigint
    FROM (SELECT w.* FROM "public"."outbox_worker" AS w ORDER BY w.worker_id DESC LIMIT (arg->>'limit')::int) AS w
    LEFT JOIN claims AS c ON c.worker_id = w.worker_id;
$outbox$;
