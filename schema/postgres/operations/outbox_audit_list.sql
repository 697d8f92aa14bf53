-- Lists what operators have done, the latest first: up to limit before a number.
-- Called as: SELECT * FROM "public"."outbox_audit_list"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_audit_list"(arg json) RETURNS TABLE (
    no bigint, happened_ms bigint, actor text, act text, selection text, affected int)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $outbox$
    SELECT a.audit_no, (extract(epoch FROM a.happened_at) * 1000)::bigint, a.actor, a.act, a.selection, a.affected
    FROM "public"."outbox_audit" AS a
    WHERE a.audit_no < coalesce((arg->>'before')::bigint, 9223372036854775807)
    ORDER BY a.audit_no DESC
    LIMIT (arg->>'limit')::int;
$outbox$;
