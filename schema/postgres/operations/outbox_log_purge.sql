-- Looks at up to limit positions, and deletes those that are older than the given age and that every consumer group of their
-- topic, and every group of the whole log (topic ''), has passed, with their messages if they have no state, which are for
-- the log alone. A group's dead letters stay, and so do events: a round begins after those that the log begins with, of
-- which it passes at most a hundred times limit that it has not passed before, and ends at the first position that is too
-- young. Returns how many were deleted, and where to continue: the after of the next call, or 0 at the end. Rows are looked
-- up by subqueries, so that the planner has no choice.
-- Called as: SELECT * FROM "public"."outbox_log_purge"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_purge"(arg json) RETURNS TABLE (affected bigint, after bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    before  timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
    done_to bigint      := coalesce((arg->>'after')::bigint, 0);
    most    int         := (arg->>'limit')::int;
    looked  bigint[];
    young   bigint;
    highest bigint;
    swept   bigint;
    other   bigint;
BEGIN
    IF done_to = 0 THEN
        SELECT c.position INTO highest FROM "public"."outbox_log_counter" AS c WHERE c.id = 1;
        SELECT least(w.position, highest) INTO swept FROM "public"."outbox_event_swept" AS w WHERE w.id = 1;
        highest := least(highest, swept + 100 * most::bigint);
        SELECT l.position INTO other FROM "public"."outbox_log" AS l
        WHERE l.position > swept AND l.position <= highest
          AND (SELECT e.seq FROM "public"."outbox_event" AS e
               WHERE e.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = l.message_id LIMIT 1) LIMIT 1) IS NULL
        ORDER BY l.position LIMIT 1;
        done_to := coalesce(other - 1, highest);
        IF done_to <> swept THEN
            UPDATE "public"."outbox_event_swept" AS w SET position = done_to WHERE w.id = 1;
        END IF;
    END IF;
    IF (SELECT l.logged_at FROM "public"."outbox_log" AS l WHERE l.position > done_to ORDER BY l.position LIMIT 1) > before THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint;
        RETURN;
    END IF;
    looked := ARRAY(SELECT l.position FROM "public"."outbox_log" AS l WHERE l.position > done_to ORDER BY l.position LIMIT most);
    SELECT min(l.position) INTO young FROM "public"."outbox_log" AS l WHERE l.position = ANY (looked) AND l.logged_at > before;
    RETURN QUERY
    WITH old AS MATERIALIZED (
        SELECT l.position FROM "public"."outbox_log" AS l
        WHERE l.position = ANY (looked) AND l.position < coalesce(young, 9223372036854775807)
          AND (SELECT g.position FROM "public"."outbox_log_group" AS g WHERE g.topic IN (l.topic, '') AND g.position < l.position LIMIT 1) IS NULL
          AND (SELECT d.position FROM "public"."outbox_log_dead" AS d WHERE d.position = l.position LIMIT 1) IS NULL
          AND (SELECT e.seq FROM "public"."outbox_event" AS e
               WHERE e.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = l.message_id LIMIT 1) LIMIT 1) IS NULL
        ORDER BY l.position
        FOR UPDATE OF l SKIP LOCKED),
    gone AS (
        DELETE FROM "public"."outbox_log" AS l USING old WHERE l.position = ANY (ARRAY[old.position]) RETURNING l.position, l.message_id),
    dropped AS (
        DELETE FROM "public"."outbox" AS o USING gone
        WHERE o.message_id = ANY (ARRAY[gone.message_id]) AND (SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = o.seq) IS NULL)
    SELECT count(*), CASE WHEN young IS NULL AND cardinality(looked) = most THEN looked[most] ELSE 0 END FROM gone;
END
$outbox$;
