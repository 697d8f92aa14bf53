-- The joins that have a message as a step, with the step's state and theirs.
-- Called as: SELECT * FROM "public"."outbox_join_of"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_of"(arg json) RETURNS TABLE (join_id text, step_status int, by_report boolean, created_ms bigint, status int, grouping_key text)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT m.join_id::text, m.status::int, m.ends_by = 1, (extract(epoch FROM m.created_at) * 1000)::bigint, j.status::int, j.grouping_key::text
    FROM (SELECT m.* FROM "public"."outbox_join_member" AS m WHERE m.message_id = (arg->>'id')::uuid ORDER BY m.message_id LIMIT (arg->>'limit')::int) AS m
    CROSS JOIN LATERAL (SELECT j.* FROM "public"."outbox_join" AS j WHERE j.join_id = m.join_id LIMIT 1) AS j;
END
$outbox$;
