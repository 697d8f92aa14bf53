-- Returns the position of an event in the log, 0 if it has none yet and -1 if there is no such event, and how far a consumer group
-- has read that, -1 if there is no such group: the group of the whole log (topic '') or of the event's topic.
-- Called as: SELECT * FROM "public"."outbox_event_wait"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_event_wait"(arg json) RETURNS TABLE ("position" bigint, reached bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    wanted text COLLATE "C" := arg->>'stream';
    groups text COLLATE "C" := arg->>'group';
    l      record;
BEGIN
    SELECT coalesce(g.position, 0) AS position, g.topic INTO l
    FROM "public"."outbox_event_stream" AS s
    CROSS JOIN LATERAL (SELECT v.seq FROM "public"."outbox_event" AS v WHERE v.stream_no = s.stream_no AND v.version = (arg->>'version')::bigint LIMIT 1) AS e
    CROSS JOIN LATERAL (SELECT m.message_id FROM "public"."outbox" AS m WHERE m.seq = e.seq LIMIT 1) AS o
    LEFT JOIN LATERAL (SELECT p.position, p.topic FROM "public"."outbox_log" AS p WHERE p.message_id = o.message_id LIMIT 1) AS g ON true
    WHERE s.name = wanted;
    RETURN QUERY
    SELECT coalesce(l.position, -1),
           coalesce((SELECT max(g.position) FROM "public"."outbox_log_group" AS g WHERE g.group_name = groups AND g.topic IN (l.topic, '')), -1);
END
$outbox$;
