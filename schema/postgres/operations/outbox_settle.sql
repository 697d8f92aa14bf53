-- Ends or returns held messages of any number of claims in one transaction, counts ended steps in their joins, and returns
-- the receipts it refused and, under seq 0, the joins that have ended. Held means in progress with the same owner token; an
-- expired lease that nobody took is still held. Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3
-- fail. Rows are locked in order of seq. The error of an attempt goes into outbox_attempt; a release records one only if it
-- is new. With delete_acked, the state of an acknowledged message is deleted, unless something depends on it; the contents
-- are left for purging. Leases that the caller says are over end here; others when they expire. Returned messages go back to
-- the queues of their streams. In the library's own transaction (own), finished runs end and free their streams; in a
-- caller's, streams are left alone. With skip_failed, a failed message does not block its stream. Only steps of joins have
-- flag 1, so ordinary messages need no lookup. With pass_over, a row that another transaction has locked is skipped: its
-- receipt is returned with status 1, busy, to be tried again, and holds up no other. Locking all rows first would double the
-- cost of settling, so that is done only after a lock was waited for. Together with a claim, no lock is waited for long, not
-- even a join's, because the claim would wait too. Rows are found by = ANY (ARRAY[key]): with a plain =, the planner could
-- also use a merge join and read the whole table in order of the key, which it does if it believes that there are few rows.
-- Called as: SELECT * FROM "public"."outbox_settle"($1)
DROP FUNCTION IF EXISTS "public"."outbox_settle"(json);
CREATE FUNCTION "public"."outbox_settle"(arg json) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment      timestamptz := clock_timestamp();
    worker      int         := "public"."outbox_worker_number"(arg->>'worker');
    drop_acked  boolean     := (arg->>'delete_acked')::boolean;
    own         boolean     := coalesce((arg->>'own')::boolean, false);
    skip_failed boolean     := coalesce((arg->>'skip_failed')::boolean, false);
    pass_over   boolean     := coalesce((arg->>'pass_over')::boolean, false);
    along       boolean     := coalesce((arg->>'along')::boolean, false);
    skipping    boolean     := false;
    patience    text        := current_setting('lock_timeout');
    backoff     bigint      := (arg->>'backoff_ms')::bigint;
    backoff_cap bigint      := (arg->>'backoff_max_ms')::bigint;
    done        bigint[];
    dead        bigint[];
    lost        bigint[];
    lost_by     text[];
    busy        int[];
    streams     bigint[];
BEGIN
    IF pass_over THEN
        PERFORM set_config('lock_timeout', '10ms', true);
    END IF;
    LOOP
        BEGIN
            WITH wanted AS MATERIALIZED (
                SELECT s.seq::bigint AS seq, g.owner, g.outcome, g.delay_ms, g.error
                FROM json_to_recordset(arg->'groups') AS g(owner uuid, outcome int, delay_ms bigint, error text, seqs json)
                CROSS JOIN LATERAL json_array_elements_text(g.seqs) AS s(seq)
                ORDER BY 1),
            free AS MATERIALIZED (
                SELECT w.seq, w.owner, w.outcome, w.delay_ms, w.error
                FROM wanted AS w INNER JOIN "public"."outbox_state" AS s ON s.seq = ANY (ARRAY[w.seq]) AND s.owner_token = w.owner
                WHERE skipping
                FOR UPDATE OF s SKIP LOCKED),
            chosen AS MATERIALIZED (
                SELECT f.seq, f.owner, f.outcome, f.delay_ms, f.error FROM free AS f
                UNION ALL
                SELECT w.seq, w.owner, w.outcome, w.delay_ms, w.error FROM wanted AS w WHERE NOT skipping),
            dropped AS (
                DELETE FROM "public"."outbox_state" AS s
                USING chosen AS w
                WHERE s.seq = ANY (ARRAY[w.seq]) AND s.owner_token = w.owner AND drop_acked AND w.outcome = 0 AND s.flags = 0
                  AND (own OR s.stream_id IS NULL)
                RETURNING s.seq, w.owner, w.outcome, w.error, s.retry_count, s.flags, s.stream_id),
            kept AS (
                UPDATE "public"."outbox_state" AS s
                SET status = CASE WHEN w.outcome = 0 THEN 2 WHEN w.outcome = 3 THEN 3 WHEN s.stream_id IS NULL THEN 0 ELSE 5 END,
                    owner_token = NULL,
                    retry_count = s.retry_count + CASE w.outcome WHEN 1 THEN 1 ELSE 0 END,
                    next_attempt_at = CASE
                        WHEN w.outcome NOT IN (1, 2) THEN s.next_attempt_at
                        ELSE moment + interval '1 millisecond' * coalesce(w.delay_ms,
                            CASE w.outcome WHEN 1 THEN least(backoff_cap, backoff * (1::bigint << least(s.retry_count, 30))) ELSE 0 END) END,
                    processed_at = CASE WHEN w.outcome IN (0, 3) THEN moment END,
                    worker_id = CASE WHEN w.outcome IN (0, 3) THEN worker END,
                    flags = CASE WHEN w.outcome = 3 AND skip_failed AND s.stream_id IS NOT NULL THEN s.flags | 4 ELSE s.flags END
                FROM chosen AS w
                WHERE s.seq = ANY (ARRAY[w.seq]) AND s.owner_token = w.owner
                  AND (NOT drop_acked OR w.outcome <> 0 OR w.seq NOT IN (SELECT d.seq FROM dropped AS d)) -- flags may change before the lock is had
                RETURNING s.seq, w.owner, w.outcome, w.error, s.retry_count, s.flags, s.stream_id),
            settled AS (
                SELECT k.* FROM kept AS k
                UNION ALL
                SELECT d.* FROM dropped AS d),
            noted AS (
                INSERT INTO "public"."outbox_attempt" (seq, happened_at, worker_id, attempt, outcome, error)
                SELECT s.seq, moment, worker, s.retry_count + CASE s.outcome WHEN 1 THEN 0 ELSE 1 END, s.outcome, s.error
                FROM settled AS s
                WHERE s.outcome IN (1, 3) OR s.error IS NOT NULL AND s.error IS DISTINCT FROM
                      (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = s.seq ORDER BY a.attempt_id DESC LIMIT 1)),
            refused AS (
                SELECT w.seq, w.owner FROM wanted AS w
                WHERE (SELECT count(*) FROM wanted) > (SELECT count(*) FROM settled) -- else none was refused
                EXCEPT SELECT s.seq, s.owner FROM settled AS s)
            SELECT (SELECT array_agg(DISTINCT s.stream_id) FROM settled AS s WHERE s.stream_id IS NOT NULL),
                   (SELECT array_agg(s.seq) FROM settled AS s WHERE s.outcome = 0 AND s.flags & 1 = 1),
                   (SELECT array_agg(s.seq) FROM settled AS s WHERE s.outcome = 3 AND s.flags & 1 = 1), r.seqs, r.owners, r.busy
            INTO streams, done, dead, lost, lost_by, busy
            FROM (SELECT array_agg(r.seq) AS seqs, array_agg(r.owner::text) AS owners,
                         array_agg((SELECT 1 FROM "public"."outbox_state" AS s WHERE skipping AND s.seq = r.seq AND s.owner_token = r.owner)) AS busy
                  FROM refused AS r) AS r;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF skipping OR NOT pass_over THEN
                RAISE;
            END IF;
            skipping := true;
        END;
    END LOOP;
    IF pass_over THEN
        PERFORM set_config('lock_timeout', CASE WHEN along THEN '100ms' ELSE patience END, true);
    END IF;

    IF lost IS NOT NULL THEN
        RETURN QUERY SELECT unnest(lost), unnest(lost_by), NULL::text, unnest(busy), NULL::int, NULL::int, NULL::int;
    END IF;
    IF own AND lost IS NOT NULL THEN -- what a handler's own transaction has settled is refused here
        streams := streams || array_remove(ARRAY(
            SELECT (SELECT s.stream_id FROM "public"."outbox_state" AS s WHERE s.seq = l) FROM unnest(lost) AS l), NULL);
    END IF;
    IF arg->'over' IS NOT NULL THEN
        DELETE FROM "public"."outbox_lease" AS l
        USING (SELECT e.owner_token FROM json_array_elements_text(arg->'over') AS o(owner) CROSS JOIN LATERAL (
                   SELECT e.owner_token FROM "public"."outbox_lease" AS e WHERE e.owner_token = o.owner::uuid FOR UPDATE SKIP LOCKED) AS e) AS f
        WHERE l.owner_token = ANY (ARRAY[f.owner_token]);
    END IF;
    IF done IS NOT NULL OR dead IS NOT NULL THEN
        RETURN QUERY SELECT * FROM "public"."outbox_join_count"(
            ARRAY(SELECT o.message_id FROM "public"."outbox" AS o WHERE o.seq = ANY (done)),
            ARRAY(SELECT o.message_id FROM "public"."outbox" AS o WHERE o.seq = ANY (dead)));
    END IF;
    IF own AND cardinality(streams) > 0 THEN -- last: no stream is locked while a join is waited for
        PERFORM "public"."outbox_stream_free"(streams);
    END IF;
END
$outbox$;
