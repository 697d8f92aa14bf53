-- Records that a message waits for a join, and returns the state of the join; no row if there is none. While the join is
-- pending, the message is due again after recheck_ms or at its deadline, unless it is woken before: an unclaimed message is
-- put off here, a claimed one by its holder. The join is locked first, in a statement of its own, as when it ends, so that
-- no wake-up is lost. It is written to, so that ending it with an older snapshot is a conflict. If it has ended and the message is
-- known to wait for it, it is not locked: it ends once, and what follows may count in other joins. The 0 keeps the planner from
-- the index of ready messages, so that the message is found by its id.
-- Called as: SELECT * FROM "public"."outbox_join_wait"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_wait"(arg json) RETURNS TABLE (
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
    IF NOT EXISTS (SELECT FROM "public"."outbox_join" AS j WHERE j.join_id = target AND j.status + 0 <> 0)
       OR NOT EXISTS (SELECT FROM "public"."outbox_join_wait" AS w WHERE w.join_id = target AND w.message_id = waiter) THEN
        UPDATE "public"."outbox_join" AS j SET last_updated_at = j.last_updated_at WHERE j.join_id = target;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        INSERT INTO "public"."outbox_join_wait" (join_id, message_id, deadline_at)
        VALUES (target, waiter, moment + (arg->>'timeout_ms')::bigint * interval '1 millisecond')
        ON CONFLICT (join_id, message_id) DO NOTHING;
    END IF;
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
