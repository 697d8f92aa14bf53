-- Takes up to limit ready messages of the listed topics under one lease, and first gives back what expired leases hold,
-- which counts an attempt; a row with seq 0 has their number in retry_count. Topics are tried in the order given, each up to
-- its quota, until the next message does not fit into what is left of bytes (payload and headers); with first, the very
-- first may be larger. A topic with from_ms begins there: it skips what became due before, and with it the dead entries of
-- claimed messages. A coin decides whether messages of ordered streams or others come first, so that neither starves. The
-- settings pin the plan to index order: a claim then costs the same however long the backlog. Rows are found by = ANY
-- (ARRAY[key]): with a plain =, the planner could also use a merge join and read the whole table in order of the key, which
-- it does if it believes that there are few rows.
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
    topics  bigint[];
    keys    bigint[];
    quotas  int[];
    most    int         := (arg->>'limit')::int;
    run     int         := coalesce((arg->>'run')::int, 32);
    ordered boolean;
    first   boolean     := random() < 0.5;
    runs    bigint[]    := '{}';
    streams bigint[]    := '{}';
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

    IF EXISTS (SELECT FROM "public"."outbox_arrival") THEN
        FOR i IN 1 .. 20 LOOP -- what is of other topics must not hide what is of these
            EXIT WHEN NOT "public"."outbox_stream_route"(greatest(most, 100));
        END LOOP;
    END IF;
    ordered := EXISTS (SELECT FROM "public"."outbox_stream" AS t WHERE t.status = 0);
    IF ordered THEN
        SELECT array_agg(t.key), array_agg(t.quota) INTO topics, quotas FROM json_to_recordset(arg->'topics') AS t(key bigint, quota int);
    END IF;
    IF ordered AND first THEN
        SELECT c.* INTO quotas, most, room, larger, runs
        FROM "public"."outbox_stream_claim"(taker, topics, run, quotas, most, room, larger) AS c;
    END IF;

    WITH picked AS MATERIALIZED (
        SELECT p.seq, p.size
        FROM ROWS FROM (json_to_recordset(arg->'topics') AS (key bigint, quota int, from_ms bigint), unnest(quotas)) AS t(key, quota, from_ms, remaining)
        CROSS JOIN LATERAL (
            SELECT s.seq, s.size FROM "public"."outbox_state" AS s
            WHERE s.status = 0 AND s.topic_key = t.key AND s.next_attempt_at <= moment
              AND s.next_attempt_at >= coalesce(to_timestamp(t.from_ms / 1000.0), '-infinity')
            ORDER BY s.next_attempt_at, s.seq
            LIMIT coalesce(t.remaining, t.quota)
            FOR UPDATE SKIP LOCKED) AS p
        LIMIT most),
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
    IF ordered AND NOT first THEN
        keys := ARRAY(SELECT (SELECT s.topic_key FROM "public"."outbox_state" AS s WHERE s.seq = c) FROM unnest(taken) AS c);
        quotas := ARRAY(SELECT t.quota - (SELECT count(*)::int FROM unnest(keys) AS k WHERE k = t.key) FROM unnest(topics, quotas) AS t(key, quota));
        SELECT c.seqs INTO runs
        FROM "public"."outbox_stream_claim"(taker, topics, run, quotas, most - coalesce(cardinality(taken), 0),
            room - coalesce((SELECT sum(s.size) FROM "public"."outbox_state" AS s WHERE s.seq = ANY (taken)), 0)::bigint, larger AND taken IS NULL) AS c;
    END IF;
    IF cardinality(runs) > 0 THEN
        taken := coalesce(taken, '{}') || runs;
        tries := coalesce(tries, '{}') || ARRAY(SELECT (SELECT s.retry_count FROM "public"."outbox_state" AS s WHERE s.seq = r) FROM unnest(runs) AS r);
        streams := ARRAY(SELECT DISTINCT (SELECT s.stream_id FROM "public"."outbox_state" AS s WHERE s.seq = r) FROM unnest(runs) AS r);
    END IF;
    IF taken IS NULL THEN
        RETURN;
    END IF;

    INSERT INTO "public"."outbox_lease" AS l (owner_token, worker_id, locked_until, seqs, streams)
    VALUES (taker, "public"."outbox_worker_number"(arg->>'worker'), clock_timestamp() + lease, taken, streams)
    ON CONFLICT (owner_token) DO UPDATE
    SET locked_until = excluded.locked_until, seqs = l.seqs || excluded.seqs, streams = l.streams || excluded.streams;

    RETURN QUERY
    SELECT o.seq, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (date_part('epoch', o.created_at) * 1000)::bigint, (date_part('epoch', o.due_at) * 1000)::bigint,
           t.retry_count
    FROM unnest(taken, tries) AS t(seq, retry_count)
    CROSS JOIN LATERAL (SELECT o.* FROM "public"."outbox" AS o WHERE o.seq = ANY (ARRAY[t.seq]) OFFSET 0) AS o;
END
$outbox$;
