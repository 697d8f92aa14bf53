-- Takes up to limit ready messages of the listed topics under one lease, and first gives back what expired ones hold, which
-- counts an attempt; a row with seq 0 tells the number in retry_count.
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
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    lease   interval    := (arg->>'lease_ms')::bigint * interval '1 millisecond';
    taker   uuid        := (arg->>'owner')::uuid;
    expired int         := 0;
    taken   bigint[];
    tries   int[];
    room    bigint      := coalesce((arg->>'bytes')::bigint, 9223372036854775807);
    larger  boolean     := coalesce((arg->>'first')::boolean, true);
BEGIN
    IF (arg->>'give_back')::int > 0 AND EXISTS (SELECT FROM "public"."outbox_lease" AS l WHERE l.locked_until < moment) THEN
        SELECT b.messages INTO expired
        FROM "public"."outbox_give_back"((arg->>'give_back')::int, ARRAY(SELECT w::bigint FROM json_array_elements_text(arg->'waits') AS w)) AS b;
        IF expired > 0 THEN
            RETURN QUERY SELECT 0::bigint, '00000000-0000-0000-0000-000000000000', '', '', ''::bytea,
                NULL::text, NULL::text, NULL::text, 0::bigint, NULL::bigint, expired;
        END IF;
        moment := clock_timestamp(); -- what has come back may be due by now
    END IF;

    WITH picked AS MATERIALIZED (
        SELECT p.seq, p.size
        FROM json_to_recordset(arg->'topics') AS t(key bigint, quota int, from_ms bigint)
        CROSS JOIN LATERAL (
            SELECT s.seq, s.size FROM "public"."outbox_state" AS s
            WHERE s.status = 0 AND s.topic_key = t.key AND s.next_attempt_at <= moment
              AND s.next_attempt_at >= coalesce(to_timestamp(t.from_ms / 1000.0), '-infinity')
            ORDER BY s.next_attempt_at, s.seq
            LIMIT t.quota
            FOR UPDATE SKIP LOCKED) AS p
        LIMIT (arg->>'limit')::int),
    fitting AS MATERIALIZED (
        SELECT s.seq
        FROM (SELECT p.seq, sum(p.size) OVER (ROWS UNBOUNDED PRECEDING) AS total, row_number() OVER () AS place FROM picked AS p) AS s
        WHERE s.total <= room OR s.place = 1 AND larger),
    claimed AS (
        UPDATE "public"."outbox_state" AS s
        SET status = 1, owner_token = taker
        FROM fitting AS f WHERE s.seq = ANY (ARRAY[f.seq])
        RETURNING s.seq, s.retry_count)
    SELECT array_agg(c.seq), array_agg(c.retry_count) INTO taken, tries FROM claimed AS c;
    IF taken IS NULL THEN
        RETURN;
    END IF;

    INSERT INTO "public"."outbox_lease" AS l (owner_token, worker_id, locked_until, seqs)
    VALUES (taker, "public"."outbox_worker_number"(arg->>'worker'), clock_timestamp() + lease, taken)
    ON CONFLICT (owner_token) DO UPDATE SET locked_until = excluded.locked_until, seqs = l.seqs || excluded.seqs;

    RETURN QUERY
    SELECT o.seq, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (date_part('epoch', o.created_at) * 1000)::bigint, (date_part('epoch', o.due_at) * 1000)::bigint,
           t.retry_count
    FROM unnest(taken, tries) AS t(seq, retry_count)
    CROSS JOIN LATERAL (SELECT o.* FROM "public"."outbox" AS o WHERE o.seq = ANY (ARRAY[t.seq]) OFFSET 0) AS o;
END
$outbox$;
