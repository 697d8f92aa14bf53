-- Deletes up to limit events of a stream that is archived, or that were deleted, in order: with their positions, and with
-- their contents unless they are in the queue, too, whose purging deletes them then. It stops at the first event that has no
-- position yet, that a consumer group has not passed, or that is a dead letter of one. Returns how many it deleted, and how many
-- of those to delete are left. Rows are looked up by subqueries, so that the planner has no choice.
-- Called as: SELECT * FROM "public"."outbox_event_purge"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_event_purge"(arg json) RETURNS TABLE (affected bigint, remaining bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    wanted text COLLATE "C" := arg->>'stream';
    s      record;
    stop   bigint;
    upto   bigint;
BEGIN
    SELECT t.stream_no, t.purged, CASE WHEN t.archived THEN t.version ELSE t.hidden END AS ends INTO s
    FROM "public"."outbox_event_stream" AS t WHERE t.name = wanted FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint;
        RETURN;
    END IF;
    upto := least(s.ends, s.purged + (arg->>'limit')::bigint);
    SELECT e.version INTO stop
    FROM "public"."outbox_event" AS e
    WHERE e.stream_no = s.stream_no AND e.version > s.purged AND e.version <= upto
      AND (SELECT l.position FROM "public"."outbox" AS o CROSS JOIN LATERAL (
               SELECT g.position, g.topic FROM "public"."outbox_log" AS g WHERE g.message_id = o.message_id LIMIT 1) AS l
           WHERE o.seq = e.seq
             AND (SELECT g.position FROM "public"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position LIMIT 1) IS NULL
             AND (SELECT d.position FROM "public"."outbox_log_dead" AS d WHERE d.position = l.position LIMIT 1) IS NULL) IS NULL
    ORDER BY e.stream_no, e.version
    LIMIT 1;
    upto := coalesce(stop - 1, upto);
    RETURN QUERY
    WITH gone AS (
        DELETE FROM "public"."outbox_event" AS e WHERE e.stream_no = s.stream_no AND e.version > s.purged AND e.version <= upto RETURNING e.seq),
    ids AS MATERIALIZED (
        SELECT g.seq, (SELECT o.message_id FROM "public"."outbox" AS o WHERE o.seq = g.seq) AS message_id FROM gone AS g),
    unlogged AS (
        DELETE FROM "public"."outbox_log" AS l USING ids WHERE l.message_id = ANY (ARRAY[ids.message_id])),
    dropped AS (
        DELETE FROM "public"."outbox" AS o USING ids
        WHERE o.seq = ANY (ARRAY[ids.seq]) AND (SELECT t.seq FROM "public"."outbox_state" AS t WHERE t.seq = o.seq) IS NULL),
    moved AS (
        UPDATE "public"."outbox_event_stream" AS t SET purged = upto, hidden = greatest(t.hidden, upto) WHERE t.name = wanted)
    SELECT count(*), s.ends - upto FROM gone;
END
$outbox$;
