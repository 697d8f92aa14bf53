-- Makes messages steps of a join; existing steps stay as they are. A message that has ended is counted at once. Returns
-- refusals (seq -1 no such join, -2 it has ended, -3 it is full, -4 no such message, -6 it is for the log alone and never
-- ends), with nothing written, or the join if it has ended. The row of the size is locked, not the join's, so that settling
-- goes on while a long transaction attaches. The states are written to, so that none ends unnoticed at any isolation level:
-- flag 1 tells settling to count. Messages of this same transaction (fresh) cannot have ended. A message without a state was
-- deleted on acknowledgement, or is for the log alone. Each step is looked up by a subquery, so that it costs the same in a
-- join of any size, whatever the planner believes.
-- Called as: SELECT * FROM "public"."outbox_join_attach"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_attach"(arg json) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    target   uuid    := (arg->>'id')::uuid;
    reported boolean := (arg->>'by_report')::boolean;
    fresh    boolean := (arg->>'fresh')::boolean;
    steps    uuid[]  := (SELECT array_agg(DISTINCT e::uuid) FROM json_array_elements_text(arg->'messages') AS e);
    seqs     bigint[];
    attached int;
    room     int;
    pending  boolean;
    refusal  bigint;
    missing  uuid;
    done     int;
    dead     int;
BEGIN
    SELECT s.attached INTO attached FROM "public"."outbox_join_size" AS s WHERE s.join_id = target FOR UPDATE;
    SELECT j.expected_steps - attached, j.status = 0 INTO room, pending FROM "public"."outbox_join" AS j WHERE j.join_id = target;
    IF pending IS NULL THEN
        RETURN QUERY SELECT -1::bigint, target::text, NULL::text, NULL::int, NULL::int, NULL::int, NULL::int;
        RETURN;
    END IF;

    steps := (SELECT array_agg(i) FROM unnest(steps) AS i
              WHERE (SELECT m.message_id FROM "public"."outbox_join_member" AS m WHERE m.join_id = target AND m.message_id = i) IS NULL);
    IF steps IS NULL THEN
        RETURN;
    END IF;
    refusal := CASE WHEN NOT pending THEN -2 WHEN cardinality(steps) > room THEN -3 END;
    IF refusal IS NULL AND NOT reported THEN
        seqs := ARRAY(SELECT (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = i) FROM unnest(steps) AS i ORDER BY 1);
        IF NOT fresh THEN
            PERFORM FROM unnest(seqs) AS s CROSS JOIN LATERAL (SELECT FROM "public"."outbox_state" AS t WHERE t.seq = s FOR UPDATE) AS t;
        END IF;
        UPDATE "public"."outbox_state" AS s SET flags = s.flags | 1 WHERE s.seq = ANY (seqs);
        SELECT i INTO missing FROM unnest(steps) AS i
        WHERE (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = i) IS NULL LIMIT 1;
        refusal := CASE WHEN missing IS NOT NULL THEN -4 END;
        IF refusal IS NULL AND NOT fresh THEN
            SELECT i INTO missing FROM unnest(steps) AS i
            WHERE (SELECT t.seq FROM "public"."outbox_state" AS t WHERE t.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = i)) IS NULL
              AND ((SELECT g.message_id FROM "public"."outbox_log" AS g WHERE g.message_id = i LIMIT 1) IS NOT NULL
                   OR (SELECT g.message_id FROM "public"."outbox_log_pending" AS g WHERE g.message_id = i LIMIT 1) IS NOT NULL) LIMIT 1;
            refusal := CASE WHEN missing IS NOT NULL THEN -6 END;
        END IF;
    END IF;
    IF refusal IS NOT NULL THEN
        RETURN QUERY SELECT refusal, coalesce(missing, target)::text, NULL::text, NULL::int, NULL::int, NULL::int, NULL::int;
        RETURN;
    END IF;

    WITH joined AS (
        INSERT INTO "public"."outbox_join_member" (join_id, message_id, ends_by, status)
        SELECT target, i, reported::int,
               CASE WHEN reported OR fresh THEN 0
                    ELSE coalesce((SELECT CASE t.status WHEN 2 THEN 1 WHEN 3 THEN 2 ELSE 0 END FROM "public"."outbox_state" AS t
                                   WHERE t.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = i)), 1) END
        FROM unnest(steps) AS i
        RETURNING status)
    SELECT count(*) FILTER (WHERE j.status = 1), count(*) FILTER (WHERE j.status = 2) INTO done, dead FROM joined AS j;
    UPDATE "public"."outbox_join_size" AS s SET attached = s.attached + cardinality(steps) WHERE s.join_id = target;
    IF done + dead > 0 THEN
        RETURN QUERY SELECT * FROM "public"."outbox_join_advance"(ARRAY[target], ARRAY[done], ARRAY[dead]);
    END IF;
END
$outbox$;
