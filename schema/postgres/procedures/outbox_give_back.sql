-- Gives back what expired leases hold, oldest first, which counts an attempt, until at least most messages have been looked
-- at; returns how many came back and how many leases were looked at. Each message is due again after a random time up to its
-- wait, so that one that kills its process does not take the same others with it each time. Of a run of a stream, only the
-- first message in progress has spent an attempt. A message that another transaction has locked keeps its lease, which is
-- looked at again. Nothing else does: a lease whose messages have all been settled ends here at the latest. Rows are
-- found by = ANY (ARRAY[key]): with a plain =, the planner could also use a merge join, which enable_mergejoin = off only
-- makes expensive, and read the whole table in order of the key, if it believes that there are few rows.
CREATE OR REPLACE FUNCTION "public"."outbox_give_back"(most int, waits bigint[], OUT messages int, OUT leases int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    moment  timestamptz := clock_timestamp();
    streams bigint[];
BEGIN
    WITH expired AS MATERIALIZED (
        SELECT l.owner_token, l.worker_id, l.seqs, l.streams, cardinality(l.seqs) AS size FROM "public"."outbox_lease" AS l
        WHERE l.locked_until < moment
        ORDER BY l.locked_until
        LIMIT most
        FOR UPDATE SKIP LOCKED),
    first AS MATERIALIZED (
        SELECT e.owner_token, e.worker_id, e.seqs, e.streams
        FROM (SELECT x.*, sum(x.size) OVER (ROWS UNBOUNDED PRECEDING) - x.size AS before FROM expired AS x) AS e
        WHERE e.before < most),
    leased AS MATERIALIZED (
        SELECT s.seq, f.owner_token, f.worker_id,
               CASE WHEN s.stream_id IS NULL OR row_number() OVER (PARTITION BY s.stream_id ORDER BY s.seq) = 1 THEN 1 ELSE 0 END AS spent
        FROM first AS f CROSS JOIN LATERAL unnest(f.seqs) AS u(seq)
        CROSS JOIN LATERAL (
            SELECT s.seq, s.stream_id FROM "public"."outbox_state" AS s WHERE s.seq = u.seq AND s.owner_token = f.owner_token LIMIT 1) AS s),
    free AS MATERIALIZED (
        SELECT s.seq, h.owner_token, h.worker_id, h.spent FROM leased AS h
        CROSS JOIN LATERAL (
            SELECT s.seq FROM "public"."outbox_state" AS s
            WHERE s.seq = h.seq AND s.owner_token = h.owner_token FOR UPDATE SKIP LOCKED) AS s),
    back AS (
        UPDATE "public"."outbox_state" AS s
        SET status = CASE WHEN s.stream_id IS NULL THEN 0 ELSE 5 END, ready = s.stream_id IS NULL, owner_token = NULL,
            retry_count = s.retry_count + f.spent,
            next_attempt_at = moment + f.spent * random() * coalesce(waits[least(s.retry_count + 1, cardinality(waits))], 0) * interval '1 millisecond'
        FROM free AS f WHERE s.seq = ANY (ARRAY[f.seq]) AND s.owner_token = f.owner_token
        RETURNING s.seq, f.worker_id, s.retry_count, f.spent),
    noted AS (
        INSERT INTO "public"."outbox_attempt" (seq, happened_at, worker_id, attempt, outcome, error)
        SELECT b.seq, moment, b.worker_id, b.retry_count, 4, 'the lease expired: the worker stopped or did not renew it in time' FROM back AS b WHERE b.spent = 1),
    ended AS (
        DELETE FROM "public"."outbox_lease" AS l USING first AS f
        WHERE l.owner_token = ANY (ARRAY[f.owner_token])
          AND (SELECT count(*) FROM leased AS h WHERE h.owner_token = f.owner_token) = (SELECT count(*) FROM free AS h WHERE h.owner_token = f.owner_token)
        RETURNING 1)
    SELECT (SELECT count(*) FROM back), (SELECT count(*) FROM ended),
           ARRAY(SELECT u.id FROM first AS f CROSS JOIN LATERAL unnest(f.streams) AS u(id)) INTO messages, leases, streams;
    IF cardinality(streams) > 0 THEN
        PERFORM "public"."outbox_stream_free"(streams);
    END IF;
END
$outbox$;
