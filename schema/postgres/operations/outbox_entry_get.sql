-- Reads entries of an inbox by their keys; unknown ones are left out.
-- Called as: SELECT * FROM "public"."outbox_entry_get"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_entry_get"(arg json) RETURNS TABLE (
    n int, content_hash bytea, first_seen_ms bigint, last_seen_ms bigint, seen int, queue_id text, processed_ms bigint,
    status int, attempts int, last_error text, result bytea)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT w.n, v.content_hash, (extract(epoch FROM v.first_seen_at) * 1000)::bigint, (extract(epoch FROM v.last_seen_at) * 1000)::bigint,
           v.seen, v.queue_id::text, (extract(epoch FROM v.processed_at) * 1000)::bigint, v.status, v.attempts, v.last_error, v.result
    FROM json_to_recordset(arg->'entries') AS w(n int, source text, message_id text, handler text)
    CROSS JOIN LATERAL (
        SELECT * FROM "public"."outbox_entry_view" AS v
        WHERE v.handler = w.handler COLLATE "C" AND v.source = w.source COLLATE "C" AND v.message_id = w.message_id COLLATE "C"
        LIMIT 1) AS v;
END
$outbox$;
