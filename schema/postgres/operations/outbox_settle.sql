-- Ends or returns held messages of any number of claims in one transaction, counts ended steps in their joins, and returns
-- the receipts it refused and, under seq 0, the joins that have ended. Held means in progress with the same owner token; an
-- expired lease that nobody took is still held. Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3
-- fail. stages are bits to add to those of a message. Acks without any have a statement of their own: nearly all
-- settlements are acks, and they need the least. Rows are locked in order of seq, those of such acks first. The error of an
-- attempt goes into outbox_attempt; a release records one only if it is new. With delete_acked, the state of an
-- acknowledged message is deleted, unless something depends on it; the contents are left for purging. Leases that the
-- caller says are over end here; others when they expire. Returned messages go back to the queues of their streams. In the
-- library's own transaction (own), finished runs end and free their streams; in a caller's, streams are left alone. With
-- skip_failed, a failed message does not block its stream. Only steps of joins have flag 1, so ordinary messages need no
-- lookup. With pass_over, a row that another transaction has locked is skipped: its receipt is returned with status 1,
-- busy, to be tried again, and holds up only those behind it in its stream. Locking all rows first would double the cost of
-- settling, so that is done only after a lock was waited for. Together with a claim, no lock is waited for long, not even a
-- join's, because the claim would wait too. Rows are found by = ANY (ARRAY[key]): with a plain =, the planner could also
-- use a merge join, which enable_mergejoin = off only makes expensive, and read the whole table in order of the key, if
-- it believes that there are few rows.
-- Called as: SELECT * FROM "public"."outbox_settle"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_settle"(arg json) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment      timestamptz := clock_timestamp();
    patience    text        := current_setting('lock_timeout');
    skipping    boolean     := false;
    worker      int;
    drop_acked  boolean;
    own         boolean;
    skip_failed boolean;
    pass_over   boolean;
    along       boolean;
    backoff     bigint;
    backoff_cap bigint;
    groups      json;
    over        json;
    asked       int;
    returned    boolean;
    acked       bigint[];
    acked_by    uuid[];
    free        bigint[]; -- what could be locked, and is not behind what could not
    settled     bigint[];
    settled_by  uuid[];
    streams     bigint[];
    ended       bigint[]; -- of each as far as it goes, a message that was acknowledged, or NULL
    done        bigint[];
    dead        bigint[];
    lost        bigint[];
    lost_by     text[];
    busy        int[];
BEGIN
    SELECT "public"."outbox_worker_number"(a.worker), a.delete_acked, coalesce(a.own, false), coalesce(a.skip_failed, false),
           coalesce(a.pass_over, false), coalesce(a.along, false), a.backoff_ms, a.backoff_max_ms, a.groups, a.over
    INTO worker, drop_acked, own, skip_failed, pass_over, along, backoff, backoff_cap, groups, over
    FROM json_to_record(arg) AS a(
        worker text, delete_acked boolean, own boolean, skip_failed boolean, pass_over boolean, along boolean,
        backoff_ms bigint, backoff_max_ms bigint, groups json, over json);
    IF pass_over THEN
        PERFORM set_config('lock_timeout', '10ms', true);
    END IF;
    LOOP
        BEGIN
            SELECT count(*), bool_or(NOT w.plain), array_agg(w.seq) FILTER (WHERE w.plain), array_agg(w.owner) FILTER (WHERE w.plain)
            INTO asked, returned, acked, acked_by
            FROM (SELECT s.seq::bigint AS seq, g.owner, g.outcome = 0 AND g.stages IS NULL AS plain
                  FROM json_to_recordset(groups) AS g(owner uuid, outcome int, stages int, seqs json)
                  CROSS JOIN LATERAL json_array_elements_text(g.seqs) AS s(seq)
                  ORDER BY 1) AS w;
            IF skipping THEN
                WITH tried AS MATERIALIZED (
                    SELECT s.seq, s.stream_id, (
                               SELECT f.seq FROM "public"."outbox_state" AS f WHERE f.seq = s.seq AND f.owner_token = g.owner
                               FOR UPDATE SKIP LOCKED) IS NOT NULL AS free
                    FROM json_to_recordset(groups) AS g(owner uuid, seqs json)
                    CROSS JOIN LATERAL json_array_elements_text(g.seqs) AS w(seq)
                    INNER JOIN "public"."outbox_state" AS s ON s.seq = ANY (ARRAY[w.seq::bigint]) AND s.owner_token = g.owner
                    OFFSET 0),
                first AS (
                    SELECT t.seq, t.free AND (t.stream_id IS NULL OR bool_and(t.free) OVER (PARTITION BY t.stream_id ORDER BY t.seq)) AS free
                    FROM tried AS t)
                SELECT coalesce(array_agg(f.seq), '{}') INTO free FROM first AS f WHERE f.free;
                SELECT array_agg(w.seq), array_agg(w.owner) INTO acked, acked_by
                FROM unnest(acked, acked_by) AS w(seq, owner) WHERE w.seq = ANY (free);
            END IF;

            IF acked IS NOT NULL AND drop_acked THEN
                WITH dropped AS (
                    DELETE FROM "public"."outbox_state" AS s
                    USING unnest(acked, acked_by) AS w(seq, owner)
                    WHERE s.seq = ANY (ARRAY[w.seq]) AND s.owner_token = w.owner AND s.flags = 0 AND (own OR s.stream_id IS NULL)
                    RETURNING s.seq, w.owner, s.stream_id)
                SELECT array_agg(d.seq), array_agg(d.owner),
                       array_agg(d.stream_id) FILTER (WHERE d.stream_id IS NOT NULL), array_agg(d.seq) FILTER (WHERE d.stream_id IS NOT NULL)
                INTO settled, settled_by, streams, ended
                FROM dropped AS d;
            END IF;
            IF cardinality(acked) > coalesce(cardinality(settled), 0) THEN
                WITH kept AS (
                    UPDATE "public"."outbox_state" AS s
                    SET status = 2, owner_token = NULL, processed_at = moment, worker_id = worker
                    FROM unnest(acked, acked_by) AS w(seq, owner)
                    WHERE s.seq = ANY (ARRAY[w.seq]) AND s.owner_token = w.owner
                    RETURNING s.seq, w.owner, s.flags, s.stream_id)
                SELECT settled || array_agg(k.seq), settled_by || array_agg(k.owner),
                       streams || array_agg(k.stream_id) FILTER (WHERE k.stream_id IS NOT NULL),
                       ended || array_agg(k.seq) FILTER (WHERE k.stream_id IS NOT NULL), array_agg(k.seq) FILTER (WHERE k.flags & 1 = 1)
                INTO settled, settled_by, streams, ended, done
                FROM kept AS k;
            END IF;

            IF returned THEN
                WITH wanted AS MATERIALIZED (
                    SELECT s.seq::bigint AS seq, g.owner, g.outcome, g.delay_ms, g.error, g.stages
                    FROM json_to_recordset(groups) AS g(owner uuid, outcome int, delay_ms bigint, error text, stages int, seqs json)
                    CROSS JOIN LATERAL json_array_elements_text(g.seqs) AS s(seq)
                    WHERE (g.outcome <> 0 OR g.stages IS NOT NULL) AND (NOT skipping OR s.seq::bigint = ANY (free))
                    ORDER BY 1),
                kept AS (
                    UPDATE "public"."outbox_state" AS s
                    SET status = CASE WHEN w.outcome = 0 THEN 2 WHEN w.outcome = 3 THEN 3 WHEN s.stream_id IS NULL THEN 0 ELSE 5 END,
                        ready = w.outcome NOT IN (0, 3) AND s.stream_id IS NULL,
                        owner_token = NULL,
                        retry_count = s.retry_count + CASE w.outcome WHEN 1 THEN 1 ELSE 0 END,
                        next_attempt_at = CASE
                            WHEN w.outcome IN (0, 3) THEN s.next_attempt_at
                            ELSE moment + interval '1 millisecond' * coalesce(w.delay_ms,
                                CASE w.outcome WHEN 1 THEN least(backoff_cap, backoff * (1::bigint << least(s.retry_count, 30))) ELSE 0 END) END,
                        processed_at = CASE WHEN w.outcome IN (0, 3) THEN moment END,
                        dead_at = CASE WHEN w.outcome = 3 THEN moment END,
                        worker_id = CASE WHEN w.outcome IN (0, 3) THEN worker END,
                        flags = CASE WHEN w.outcome = 3 AND skip_failed AND s.stream_id IS NOT NULL THEN s.flags | 4 ELSE s.flags END,
                        stages = CASE WHEN w.stages IS NULL THEN s.stages ELSE coalesce(s.stages, 0) | w.stages END
                    FROM wanted AS w
                    WHERE s.seq = ANY (ARRAY[w.seq]) AND s.owner_token = w.owner
                    RETURNING s.seq, w.owner, w.outcome, w.error, s.retry_count, s.flags, s.stream_id),
                noted AS (
                    INSERT INTO "public"."outbox_attempt" (seq, happened_at, worker_id, attempt, outcome, error)
                    SELECT k.seq, moment, worker, k.retry_count + CASE k.outcome WHEN 1 THEN 0 ELSE 1 END, k.outcome, k.error
                    FROM kept AS k
                    WHERE k.outcome IN (1, 3) OR k.error IS NOT NULL AND k.error IS DISTINCT FROM
                          (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = k.seq ORDER BY a.attempt_id DESC LIMIT 1))
                SELECT settled || array_agg(k.seq), settled_by || array_agg(k.owner),
                       streams || array_agg(k.stream_id) FILTER (WHERE k.stream_id IS NOT NULL),
                       ended || array_agg(CASE k.outcome WHEN 0 THEN k.seq END) FILTER (WHERE k.stream_id IS NOT NULL),
                       done || array_agg(k.seq) FILTER (WHERE k.outcome = 0 AND k.flags & 1 = 1), array_agg(k.seq) FILTER (WHERE k.outcome = 3 AND k.flags & 1 = 1)
                INTO settled, settled_by, streams, ended, done, dead
                FROM kept AS k;
            END IF;

            IF asked > coalesce(cardinality(settled), 0) THEN
                SELECT array_agg(r.seq), array_agg(r.owner::text),
                       array_agg((SELECT 1 FROM "public"."outbox_state" AS s WHERE skipping AND s.seq = r.seq AND s.owner_token = r.owner))
                INTO lost, lost_by, busy
                FROM (SELECT s.seq::bigint AS seq, g.owner
                      FROM json_to_recordset(groups) AS g(owner uuid, seqs json)
                      CROSS JOIN LATERAL json_array_elements_text(g.seqs) AS s(seq)
                      EXCEPT SELECT d.seq, d.owner FROM unnest(settled, settled_by) AS d(seq, owner)) AS r;
            END IF;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF skipping OR NOT pass_over THEN
                RAISE;
            END IF;
            skipping := true;
            settled := NULL; settled_by := NULL; streams := NULL; ended := NULL; done := NULL; -- as nothing was
        END;
    END LOOP;
    -- Along with a claim, waits stay limited to the end of the transaction: after the streams locked here, giving back locks
    -- others, whatever their ids, and two such transactions can close a circle.
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
    IF over IS NOT NULL THEN
        DELETE FROM "public"."outbox_lease" AS l
        USING (SELECT e.owner_token FROM json_array_elements_text(over) AS o(owner) CROSS JOIN LATERAL (
                   SELECT e.owner_token FROM "public"."outbox_lease" AS e WHERE e.owner_token = o.owner::uuid FOR UPDATE SKIP LOCKED) AS e) AS f
        WHERE l.owner_token = ANY (ARRAY[f.owner_token]);
    END IF;
    IF done IS NOT NULL OR dead IS NOT NULL THEN
        RETURN QUERY SELECT * FROM "public"."outbox_join_count"(
            ARRAY(SELECT o.message_id FROM "public"."outbox" AS o WHERE o.seq = ANY (done)),
            ARRAY(SELECT o.message_id FROM "public"."outbox" AS o WHERE o.seq = ANY (dead)));
    END IF;
    IF own AND cardinality(streams) > 0 THEN -- last: no stream is locked while a join is waited for
        PERFORM "public"."outbox_stream_free"(streams, ended);
    END IF;
END
$outbox$;
