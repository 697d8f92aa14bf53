-- Deletes joins that ended longer ago than the given age, first their steps, up to limit rows; returns the number of rows,
-- and of joins among them. Joins that a message still waits for are kept, and those that began longer than within_ms ago,
-- if it is given. In small batches that skip locked rows: a join stays as long as somebody attaches to it, or one of its
-- steps is being counted. The size is locked before the join, in the order of attaching and sealing, and only then is a join
-- deleted, which deletes the size, too.
-- Called as: SELECT * FROM "public"."outbox_join_purge"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_purge"(arg json) RETURNS TABLE (affected bigint, joins bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    before timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
    since  timestamptz := coalesce(clock_timestamp() - (arg->>'within_ms')::bigint * interval '1 millisecond', '-infinity');
    most   int         := (arg->>'limit')::int;
    sized  uuid[];
    old    uuid[];
    steps  bigint;
    gone   bigint;
BEGIN
    SELECT array_agg(l.join_id) INTO sized
    FROM (SELECT z.join_id FROM "public"."outbox_join" AS j
          CROSS JOIN LATERAL (SELECT z.join_id FROM "public"."outbox_join_size" AS z WHERE z.join_id = j.join_id FOR UPDATE SKIP LOCKED) AS z
          WHERE j.status <> 0 AND j.created_at >= since AND j.created_at < before AND j.last_updated_at < before
            AND (SELECT w.join_id FROM "public"."outbox_join_wait" AS w
                 WHERE w.join_id = j.join_id
                   AND (SELECT s.status FROM "public"."outbox_state" AS s
                        WHERE s.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = w.message_id)) <> 2
                 LIMIT 1) IS NULL
          ORDER BY j.created_at LIMIT most) AS l;
    SELECT array_agg(j.join_id) INTO old
    FROM unnest(sized) AS l CROSS JOIN LATERAL (
        SELECT j.join_id FROM "public"."outbox_join" AS j WHERE j.join_id = l FOR UPDATE SKIP LOCKED) AS j;
    -- A message may have begun to wait since, which locks the join first.
    SELECT array_agg(l) INTO old
    FROM unnest(old) AS l
    WHERE (SELECT w.join_id FROM "public"."outbox_join_wait" AS w
           WHERE w.join_id = l
             AND (SELECT s.status FROM "public"."outbox_state" AS s
                  WHERE s.seq = (SELECT o.seq FROM "public"."outbox" AS o WHERE o.message_id = w.message_id)) <> 2
           LIMIT 1) IS NULL;
    DELETE FROM "public"."outbox_join_member" AS m
    USING (SELECT n.join_id, n.message_id FROM "public"."outbox_join_member" AS n
           WHERE n.join_id = ANY (old) LIMIT most FOR UPDATE SKIP LOCKED) AS n
    WHERE m.join_id = ANY (ARRAY[n.join_id]) AND m.message_id = ANY (ARRAY[n.message_id]);
    GET DIAGNOSTICS steps = ROW_COUNT;
    DELETE FROM "public"."outbox_join" AS j
    WHERE j.join_id = ANY (old)
      AND (SELECT m.join_id FROM "public"."outbox_join_member" AS m WHERE m.join_id = j.join_id LIMIT 1) IS NULL;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN QUERY SELECT steps + gone, gone;
END
$outbox$;
