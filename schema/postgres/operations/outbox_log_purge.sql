-- Deletes up to limit positions that are older than the given age and that every consumer group of their topic, and every
-- group of the whole log (topic ''), has passed, with their messages if they have no state, which are for the log alone.
-- Returns how many. A group's dead letters stay, and so do events: a round begins after those that the log begins with.
-- There is no index by age: the first call of a round walks to the first position that is too young and looks no further.
-- Each call returns that position as until and the last deleted one as after; pass both to the next call. Rows are looked
-- up by subqueries, so that the planner has no choice.
-- Called as: SELECT * FROM "public"."outbox_log_purge"($1)
DROP FUNCTION IF EXISTS "public"."outbox_log_purge"(json);
CREATE FUNCTION "public"."outbox_log_purge"(arg json) RETURNS TABLE (affected bigint, until bigint, after bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    before  timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
    done_to bigint      := coalesce((arg->>'after')::bigint, 0);
    young   bigint      := (arg->>'until')::bigint;
    highest bigint;
    swept   bigint;
    other   bigint;
BEGIN
    IF young IS NULL THEN
        SELECT c.position INTO highest FROM "public"."outbox_log_counter" AS c WHERE c.id = 1;
        SELECT least(w.position, highest) INTO swept FROM "public"."outbox_event_swept" AS w WHERE w.id = 1;
        SELECT l.position INTO other FROM "public"."outbox_log" AS l
        WHERE l.position > swept
          AND (SELECT e.seq FROM "public"."outbox_event" AS e
               WHERE e.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = l.message_id LIMIT 1) LIMIT 1) IS NULL
        ORDER BY l.position LIMIT 1;
        other := coalesce(other - 1, highest);
        IF other <> swept THEN
            UPDATE "public"."outbox_event_swept" AS w SET position = other WHERE w.id = 1;
        END IF;
        done_to := greatest(done_to, other);
        SELECT l.position INTO young FROM "public"."outbox_log" AS l
        WHERE l.position > done_to AND l.logged_at > before ORDER BY l.position LIMIT 1;
        young := coalesce(young, 9223372036854775807);
    END IF;
    RETURN QUERY
    WITH old AS MATERIALIZED (
        SELECT l.position FROM "public"."outbox_log" AS l
        WHERE l.position > done_to AND l.position < young AND l.logged_at <= before
          AND (SELECT g.position FROM "public"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position LIMIT 1) IS NULL
          AND (SELECT d.position FROM "public"."outbox_log_dead" AS d WHERE d.position = l.position LIMIT 1) IS NULL
          AND (SELECT e.seq FROM "public"."outbox_event" AS e
               WHERE e.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = l.message_id LIMIT 1) LIMIT 1) IS NULL
        ORDER BY l.position
        LIMIT (arg->>'limit')::int
        FOR UPDATE OF l SKIP LOCKED),
    gone AS (
        DELETE FROM "public"."outbox_log" AS l USING old WHERE l.position = ANY (ARRAY[old.position]) RETURNING l.position, l.message_id),
    dropped AS (
        DELETE FROM "public"."outbox" AS o USING gone
        WHERE o.message_id = ANY (ARRAY[gone.message_id]) AND (SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = o.seq) IS NULL)
    SELECT count(*), young, coalesce(max(g.position), done_to) FROM gone AS g;
END
$outbox$;
