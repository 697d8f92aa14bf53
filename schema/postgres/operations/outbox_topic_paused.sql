-- Lists the paused topics: since when, who paused them, and why. Few topics are.
-- Called as: SELECT * FROM "public"."outbox_topic_paused"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_topic_paused"(arg json) RETURNS TABLE (topic text, paused_ms bigint, paused_by text, reason text)
LANGUAGE sql STABLE SET enable_seqscan = off AS $outbox$
    SELECT p.topic::text, (extract(epoch FROM p.paused_at) * 1000)::bigint, p.paused_by, p.reason FROM "public"."outbox_paused" AS p;
$outbox$;
