-- Makes owner the one reader of a topic for a consumer group (take), or keeps it so, and moves the group on to position, but
-- never back. Answers with the group's position, and nothing while another has the lease, or, without take, where owner has
-- it no more. With lease_ms 0 it gives the lease back. The topic '' is the whole log.
-- Called as: SELECT * FROM "public"."outbox_log_lease"($1)
DROP FUNCTION IF EXISTS "public"."outbox_log_lease"(json);
CREATE FUNCTION "public"."outbox_log_lease"(arg json) RETURNS TABLE ("position" bigint)
LANGUAGE plpgsql AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    taker  uuid        := (arg->>'owner')::uuid;
    lease  bigint      := (arg->>'lease_ms')::bigint;
    take   boolean     := (arg->>'take')::boolean;
BEGIN
    IF take AND NOT EXISTS (
        SELECT FROM "public"."outbox_log_group" AS g WHERE g.group_name = arg->>'group' AND g.topic = arg->>'topic') THEN
        INSERT INTO "public"."outbox_log_group" (group_name, topic) VALUES (arg->>'group', arg->>'topic')
        ON CONFLICT (group_name, topic) DO NOTHING;
    END IF;
    RETURN QUERY
    UPDATE "public"."outbox_log_group" AS g
    SET position = CASE WHEN g.owner_token = taker THEN greatest(g.position, (arg->>'position')::bigint) ELSE g.position END,
        owner_token = CASE WHEN lease > 0 THEN taker END,
        locked_until = CASE WHEN lease > 0 THEN moment + lease * interval '1 millisecond' END
    WHERE g.group_name = arg->>'group' AND g.topic = arg->>'topic'
      AND (g.owner_token = taker OR take AND (g.owner_token IS NULL OR g.locked_until < moment))
    RETURNING g.position;
END
$outbox$;
