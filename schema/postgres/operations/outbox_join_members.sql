-- Reads a page of the steps of a join, in order of message id after a given one, where it begins to read.
-- Called as: SELECT * FROM "public"."outbox_join_members"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_members"(arg json) RETURNS TABLE (message_id text, by_report boolean, status int, created_ms bigint)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $outbox$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT m.message_id::text, m.ends_by = 1, m.status::int, (extract(epoch FROM m.created_at) * 1000)::bigint
    FROM "public"."outbox_join_member" AS m
    WHERE m.join_id = (arg->>'id')::uuid AND m.message_id > coalesce((arg->>'after')::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY m.message_id
    LIMIT (arg->>'limit')::int;
END
$outbox$;
