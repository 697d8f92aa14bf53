-- Deletes up to limit messages that are no longer needed, with contents, states and attempts, and returns how many, and
-- where to continue: the after of the next call, or 0 at the end. In small batches that skip locked rows, so that nothing
-- waits for it. With seqs: those of the list whose states were deleted on acknowledgement. With ids: those of the list that
-- had failed until then. With status 3: those that failed longer ago than the given age, but not longer than within_ms if
-- that is given, the oldest first; after is when the last of them had failed, and the end is where there are none. Otherwise
-- those done before that, or without a state, in order of publishing, up to the first that was published later than that.
-- Messages that joins or the log need (outbox_kept) are kept; only those with flags can be among them. That view is asked
-- for one message at a time: joined to a table, it would be read from end to end for each.
-- Rows are found by = ANY (ARRAY[key]): with a plain =, the planner could also use a merge join, which enable_mergejoin =
-- off only makes expensive, and read the whole table in order of the key, if it believes that there are few rows.
-- Called as: SELECT * FROM "public"."outbox_purge"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_purge"(arg json) RETURNS TABLE (affected bigint, after bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    before timestamptz := clock_timestamp() - (arg->>'older_than_ms')::bigint * interval '1 millisecond';
    since  timestamptz := coalesce(clock_timestamp() - (arg->>'within_ms')::bigint * interval '1 millisecond', '-infinity');
    done_to bigint     := coalesce((arg->>'after')::bigint, 0);
    most    int        := (arg->>'limit')::int;
    young   bigint;
    looked  bigint[];
    old     bigint[];
    free    bigint[];
BEGIN
    IF arg->'seqs' IS NOT NULL THEN
        -- If the state is gone, neither the log nor a join depended on the message.
        old := ARRAY(SELECT e::bigint FROM json_array_elements_text(arg->'seqs') AS e
                     WHERE (SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = e::bigint) IS NULL);
    ELSE
        IF arg->'ids' IS NOT NULL THEN
            before := 'epoch'::timestamptz + (arg->>'until')::bigint * interval '1 microsecond';
            old := ARRAY(
                SELECT s.seq FROM "public"."outbox_state" AS s
                WHERE s.seq = ANY (ARRAY(SELECT o.seq FROM "public"."outbox" AS o
                                         WHERE o.message_id = ANY (ARRAY(SELECT e::uuid FROM json_array_elements_text(arg->'ids') AS e))))
                  AND s.status + 0 = 3 AND s.processed_at <= before
                  AND (s.stream_id IS NULL OR (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = s.stream_id AND q.seq = s.seq) IS NULL
                                              AND (SELECT t.head FROM "public"."outbox_stream" AS t WHERE t.stream_id = s.stream_id) IS DISTINCT FROM s.seq)
                  AND (s.flags = 0 OR (SELECT (SELECT k.message_id FROM "public"."outbox_kept" AS k WHERE k.message_id = o.message_id LIMIT 1)
                                       FROM "public"."outbox" AS o WHERE o.seq = s.seq) IS NULL)
                ORDER BY s.seq
                FOR UPDATE OF s SKIP LOCKED);
            DELETE FROM "public"."outbox_state" AS s WHERE s.seq = ANY (old);
        ELSIF (arg->>'status')::int = 3 THEN
            old := ARRAY(
                SELECT s.seq FROM "public"."outbox_state" AS s
                WHERE s.dead_at >= greatest(since, 'epoch'::timestamptz + done_to * interval '1 microsecond') AND s.dead_at <= before
                  AND (s.stream_id IS NULL OR (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = s.stream_id AND q.seq = s.seq) IS NULL
                                              AND (SELECT t.head FROM "public"."outbox_stream" AS t WHERE t.stream_id = s.stream_id) IS DISTINCT FROM s.seq)
                  AND (s.flags = 0 OR (SELECT (SELECT k.message_id FROM "public"."outbox_kept" AS k WHERE k.message_id = o.message_id LIMIT 1)
                                       FROM "public"."outbox" AS o WHERE o.seq = s.seq) IS NULL)
                ORDER BY s.dead_at
                LIMIT most
                FOR UPDATE OF s SKIP LOCKED);
            done_to := coalesce((SELECT (extract(epoch FROM max(s.dead_at)) * 1000000)::bigint
                                 FROM "public"."outbox_state" AS s WHERE s.seq = ANY (old)), 0);
            DELETE FROM "public"."outbox_state" AS s WHERE s.seq = ANY (old);
        ELSE
            IF (SELECT o.created_at FROM "public"."outbox" AS o WHERE o.seq > done_to ORDER BY o.seq LIMIT 1) > before THEN
                RETURN QUERY SELECT 0::bigint, 0::bigint;
                RETURN;
            END IF;
            looked := ARRAY(SELECT o.seq FROM "public"."outbox" AS o WHERE o.seq > done_to ORDER BY o.seq LIMIT most);
            SELECT min(o.seq) INTO young FROM "public"."outbox" AS o WHERE o.seq = ANY (looked) AND o.created_at > before;
            old := ARRAY(SELECT l FROM unnest(looked) AS l WHERE l < coalesce(young, 9223372036854775807));
            done_to := CASE WHEN young IS NULL AND cardinality(looked) = most THEN looked[most] ELSE 0 END;
            free := ARRAY(
                SELECT f.seq FROM unnest(old) AS l CROSS JOIN LATERAL (
                    SELECT s.seq FROM "public"."outbox_state" AS s
                    WHERE s.seq = l AND s.status + 0 = 2 AND s.processed_at <= before
                      AND (s.stream_id IS NULL OR (SELECT q.seq FROM "public"."outbox_queue" AS q WHERE q.stream_id = s.stream_id AND q.seq = s.seq) IS NULL
                                                  AND (SELECT t.head FROM "public"."outbox_stream" AS t WHERE t.stream_id = s.stream_id) IS DISTINCT FROM s.seq)
                      AND (s.flags = 0 OR (SELECT (SELECT k.message_id FROM "public"."outbox_kept" AS k WHERE k.message_id = o.message_id LIMIT 1)
                                           FROM "public"."outbox" AS o WHERE o.seq = s.seq) IS NULL)
                    FOR UPDATE OF s SKIP LOCKED) AS f);
            DELETE FROM "public"."outbox_state" AS s WHERE s.seq = ANY (free);
        END IF;
        old := ARRAY(SELECT o.seq FROM "public"."outbox" AS o
                     WHERE o.seq = ANY (old)
                       AND (SELECT s.seq FROM "public"."outbox_state" AS s WHERE s.seq = o.seq) IS NULL
                       AND (SELECT k.message_id FROM "public"."outbox_kept" AS k WHERE k.message_id = o.message_id LIMIT 1) IS NULL);
    END IF;

    DELETE FROM "public"."outbox_attempt" AS a WHERE a.seq = ANY (old);
    RETURN QUERY
    WITH gone AS (DELETE FROM "public"."outbox" AS o WHERE o.seq = ANY (old) RETURNING 1)
    SELECT count(*), CASE WHEN arg->'seqs' IS NULL AND arg->'ids' IS NULL AND (arg->>'status')::int IN (2, 3) THEN done_to ELSE 0 END FROM gone;
END
$outbox$;
