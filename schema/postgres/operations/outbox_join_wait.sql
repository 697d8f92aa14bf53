-- Notes that a message waits for a join and answers how the join stands; no row if there is no such join.
-- While it is pending, the message is looked at again after recheck_ms or at its deadline, should nothing wake it before:
-- one that is not claimed is put off here, one that is claimed by whoever holds it.
-- The join is locked first, in a statement of its own, as by whoever ends it: so that no wake-up is lost. It is written to,
-- so that whoever ends it with an older snapshot has a conflict. The 0 keeps the planner from the index of ready messages:
-- the message is to be found by its id.
-- Called as: SELECT * FROM "public"."outbox_join_wait"($1)
DROP FUNCTION IF EXISTS "public"."outbox_join_wait"(json);
CREATE FUNCTION "public"."outbox_join_wait"(arg json) RETURNS TABLE (
    status int, expected int, completed int, failed int, strict boolean, overdue boolean, again_ms bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $outbox$
#variable_conflict use_column
DECLARE
    moment   timestamptz := clock_timestamp();
    target   uuid        := (arg->>'id')::uuid;
    waiter   uuid        := (arg->>'message')::uuid;
    deadline timestamptz;
    again    timestamptz;
BEGIN
    UPDATE "public"."outbox_join" AS j SET last_updated_at = j.last_updated_at WHERE j.join_id = target;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO "public"."outbox_join_wait" (join_id, message_id, deadline_at)
    VALUES (target, waiter, moment + (arg->>'timeout_ms')::bigint * interval '1 millisecond')
    ON CONFLICT (join_id, message_id) DO NOTHING;
    SELECT w.deadline_at INTO deadline FROM "public"."outbox_join_wait" AS w WHERE w.join_id = target AND w.message_id = waiter;
    again := least(deadline, moment + (arg->>'recheck_ms')::bigint * interval '1 millisecond');
    IF NOT (arg->>'claimed')::boolean THEN
        UPDATE "public"."outbox_state" AS s SET next_attempt_at = again
        WHERE s.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = waiter) AND s.status + 0 = 0
          AND EXISTS (SELECT FROM "public"."outbox_join" AS j WHERE j.join_id = target AND j.status = 0);
    END IF;
    RETURN QUERY
    SELECT j.status::int, j.expected_steps, j.completed_steps, j.failed_steps, j.fail_fast OR j.quorum IS NOT NULL,
           coalesce(deadline <= moment, false), greatest(1, ceil(extract(epoch FROM again - moment) * 1000))::bigint
    FROM "public"."outbox_join" AS j WHERE j.join_id = target;
END
$outbox$;
