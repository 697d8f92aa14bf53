-- Takes up to limit ready messages of the listed topics under a lease, and first gives back a bounded number of
-- expired leases, which counts an attempt; a row with seq 0 tells their number in retry_count. Each of those is due again
-- after a random time up to its wait, so that one that ends its process does not take the same others with it each time.
-- Topics are tried in the order given, each up to its quota, until the next message does not fit in what is left of bytes,
-- payload and headers; with first, the very first may be larger.
-- A topic with from_ms begins there: what became due before is passed over, and so are the dead entries of what was claimed.
-- The settings pin the plan to index order: a claim then costs the same whatever waits behind it.
-- Rows are found by = ANY (ARRAY[key]): a plain = could also be merged, which lets the planner read the whole table in order
-- of the key, and it does where it believes that there are few rows.
-- Called as: SELECT * FROM "public"."outbox_claim"($1)
DROP FUNCTION IF EXISTS "public"."outbox_claim"(json);
CREATE FUNCTION "public"."outbox_claim"(arg json) RETURNS TABLE (
    seq bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    lease   interval    := (arg->>'lease_ms')::bigint * interval '1 millisecond';
    taker   uuid        := (arg->>'owner')::uuid;
    expired int         := 0;
    waits   bigint[];
    room    bigint      := coalesce((arg->>'bytes')::bigint, 9223372036854775807);
    larger  boolean     := coalesce((arg->>'first')::boolean, true);
BEGIN
    IF (arg->>'give_back')::int > 0 THEN
        waits := ARRAY(SELECT w::bigint FROM json_array_elements_text(arg->'waits') AS w);
        WITH overdue AS MATERIALIZED (
            SELECT o.seq FROM "public"."outbox" AS o
            WHERE o.status = 1 AND o.locked_until < moment
            ORDER BY o.locked_until
            LIMIT (arg->>'give_back')::int
            FOR UPDATE SKIP LOCKED)
        UPDATE "public"."outbox" AS o
        SET status = 0, owner_token = NULL, locked_until = NULL, retry_count = o.retry_count + 1,
            next_attempt_at = moment + random() * coalesce(waits[least(o.retry_count + 1, cardinality(waits))], 0) * interval '1 millisecond',
            last_error = 'the lease expired: the worker stopped or did not renew it in time'
        FROM overdue WHERE o.seq = ANY (ARRAY[overdue.seq]);
        GET DIAGNOSTICS expired = ROW_COUNT;
        IF expired > 0 THEN
            RETURN QUERY SELECT 0::bigint, '00000000-0000-0000-0000-000000000000', '', '', ''::bytea,
                NULL::text, NULL::text, NULL::text, 0::bigint, NULL::bigint, expired;
        END IF;
    END IF;

    RETURN QUERY
    WITH picked AS MATERIALIZED (
        SELECT p.seq, p.size
        FROM json_to_recordset(arg->'topics') AS t(topic text, quota int, from_ms bigint)
        CROSS JOIN LATERAL (
            SELECT o.seq, octet_length(o.payload) + coalesce(octet_length(o.headers), 0) AS size FROM "public"."outbox" AS o
            WHERE o.status = 0 AND o.topic = t.topic COLLATE "C" AND o.next_attempt_at <= moment
              AND o.next_attempt_at >= coalesce(to_timestamp(t.from_ms / 1000.0), '-infinity')
            ORDER BY o.next_attempt_at, o.seq
            LIMIT t.quota
            FOR UPDATE SKIP LOCKED) AS p
        LIMIT (arg->>'limit')::int),
    fitting AS MATERIALIZED (
        SELECT s.seq
        FROM (SELECT p.seq, sum(p.size) OVER (ROWS UNBOUNDED PRECEDING) AS total, row_number() OVER () AS place FROM picked AS p) AS s
        WHERE s.total <= room OR s.place = 1 AND larger)
    UPDATE "public"."outbox" AS o
    SET status = 1, owner_token = taker, locked_until = clock_timestamp() + lease
    FROM fitting AS f WHERE o.seq = ANY (ARRAY[f.seq])
    RETURNING o.seq, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
              (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint,
              o.retry_count;
END
$outbox$;
