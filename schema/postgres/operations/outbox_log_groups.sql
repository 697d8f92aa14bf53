-- Lists the consumer groups of the log, by name, at most limit after a name, with how far behind they are: messages that they have
-- not passed and dead letters, each counted up to counted, and when the first of those messages was logged. A group without
-- a topic reads the whole log.
-- Called as: SELECT * FROM "public"."outbox_log_groups"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_groups"(arg json) RETURNS TABLE (
    group_name text, topic text, "position" bigint, behind bigint, next_ms bigint, dead bigint, locked_until_ms bigint, attempts int, now_ms bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    most int := (arg->>'counted')::int;
BEGIN
    RETURN QUERY
    SELECT g.group_name::text, g.topic::text, g.position,
           CASE g.topic WHEN '' THEN
               (SELECT count(*) FROM (SELECT FROM "public"."outbox_log" AS l WHERE l.position > g.position ORDER BY l.position LIMIT most) AS c)
           ELSE
               (SELECT count(*) FROM (SELECT FROM "public"."outbox_log" AS l WHERE l.topic = g.topic AND l.position > g.position ORDER BY l.topic, l.position LIMIT most) AS c)
           END,
           CASE g.topic WHEN '' THEN
               (SELECT (extract(epoch FROM l.logged_at) * 1000)::bigint FROM "public"."outbox_log" AS l WHERE l.position > g.position ORDER BY l.position LIMIT 1)
           ELSE
               (SELECT (extract(epoch FROM l.logged_at) * 1000)::bigint FROM "public"."outbox_log" AS l
                WHERE l.topic = g.topic AND l.position > g.position ORDER BY l.topic, l.position LIMIT 1)
           END,
           (SELECT count(*) FROM (SELECT FROM "public"."outbox_log_dead" AS d
                                  WHERE d.group_name = g.group_name AND (g.topic = '' OR d.topic = g.topic) ORDER BY d.group_name, d.position LIMIT most) AS c),
           (extract(epoch FROM g.locked_until) * 1000)::bigint, CASE WHEN g.tried > g.position THEN g.attempts ELSE 0 END, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM (SELECT g.* FROM "public"."outbox_log_group" AS g
          WHERE g.group_name >= coalesce(arg->>'after_group', '') COLLATE "C"
            AND (g.group_name > coalesce(arg->>'after_group', '') COLLATE "C" OR g.topic > coalesce(arg->>'after_topic', '') COLLATE "C")
          ORDER BY g.group_name, g.topic
          LIMIT (arg->>'limit')::int) AS g;
END
$outbox$;
