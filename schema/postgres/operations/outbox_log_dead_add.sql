-- Stores a message that a consumer group gives up, with the reason. If the group gave it up before, the row is updated.
-- Called as: SELECT "public"."outbox_log_dead_add"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_dead_add"(arg json) RETURNS void
LANGUAGE plpgsql AS $outbox$
#variable_conflict use_column
BEGIN
    INSERT INTO "public"."outbox_log_dead" (group_name, topic, position, message_id, attempts, reason)
    VALUES (arg->>'group', arg->>'topic', (arg->>'position')::bigint, (arg->>'message')::uuid, (arg->>'attempts')::int, arg->>'reason')
    ON CONFLICT (group_name, position, topic) DO UPDATE
    SET attempts = excluded.attempts, reason = excluded.reason, failed_at = excluded.failed_at, requeued = false;
END
$outbox$;
