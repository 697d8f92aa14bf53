-- Pauses a topic: nothing of it is claimed once this is committed. If it is paused already, only who did it and why change,
-- not since when.
-- Called as: SELECT "public"."outbox_topic_pause"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_topic_pause"(arg json) RETURNS void
LANGUAGE sql AS $outbox$
    INSERT INTO "public"."outbox_paused" (topic_key, topic, paused_by, reason)
    VALUES ((arg->>'topic_key')::bigint, arg->>'topic', arg->>'by', arg->>'reason')
    ON CONFLICT (topic_key) DO UPDATE SET paused_by = excluded.paused_by, reason = excluded.reason;
$outbox$;
