-- Takes up to limit ready messages of the listed topics that are not paused under one lease, and first gives back what
-- expired leases hold, which counts an attempt; a row with seq 0 has their number in retry_count. Topics are tried in the
-- order given, each up to its quota, until the next message does not fit into what is left of bytes (payload and headers);
-- with first, the very first may be larger. A topic with from_ms begins there: it skips what became due before, and with it
-- the dead entries of claimed messages. A coin decides whether messages of ordered streams or others come first, so that
-- neither starves. Arrivals are routed to their streams, lane by lane, until there is enough to take; in half of the claims
-- some are in any case, so that they do not wait long behind what is ready. The settings pin the plan to index order: a claim then
-- costs the same however long the backlog. States are locked when they are chosen, so that they stay where they are, and are
-- updated there: looking each up by its key again would cost a fifth more.
-- Called as: SELECT * FROM "public"."outbox_claim"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_claim"(arg json) RETURNS TABLE (
    seq bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int, stages int, claimed_ms bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    listed  json;
    taker   uuid;
    worker  text;
    lease   interval;
    most    int;
    run     int;
    room    bigint;
    budget  bigint;
    larger  boolean;
    returns int;
    waits   json;
    share   json;
    expired int         := 0;
    arrived boolean;
    ordered boolean;
    halted  boolean;
    noted   boolean;
    lanes   int[];
    since   timestamptz;
    before  boolean     := random() < 0.5;
    topics  bigint[];
    keys    bigint[];
    quotas  int[];
    picked  tid[];
    sizes   int[];
    total   bigint;
    runs    tid[];
    ready   int;
    fresh   bigint[]    := '{}';
    of      bigint[]    := '{}';
    alone   bigint[]    := '{}';
    routed  record;
BEGIN
    SELECT a.topics, a.owner, a.worker, a.lease_ms * interval '1 millisecond', a."limit", coalesce(a.run, 32),
           coalesce(a.bytes, 9223372036854775807), coalesce(a.first, true), a.give_back, a.waits, a.share,
           ARRAY(SELECT r.lane FROM "public"."outbox_router" AS r
                 WHERE (SELECT n.lane FROM "public"."outbox_arrival" AS n WHERE n.lane = r.lane AND n.arrival_id > r.low LIMIT 1) IS NOT NULL
                 ORDER BY random()),
           EXISTS (SELECT FROM "public"."outbox_stream" AS t WHERE t.status = 0),
           EXISTS (SELECT FROM "public"."outbox_paused"),
           EXISTS (SELECT FROM "public"."outbox_wake")
    INTO listed, taker, worker, lease, most, run, room, larger, returns, waits, share, lanes, ordered, halted, noted
    FROM json_to_record(arg) AS a(
        topics json, owner uuid, worker text, lease_ms bigint, "limit" int, run int, bytes bigint, first boolean, give_back int, waits json, share json);

    budget := room;
    arrived := cardinality(lanes) > 0;

    IF noted THEN
        PERFORM "public"."outbox_join_wake"();
        moment := clock_timestamp();
    END IF;

    IF returns > 0 AND EXISTS (SELECT FROM "public"."outbox_lease" AS l WHERE l.locked_until < moment) THEN
        SELECT b.messages INTO expired
        FROM "public"."outbox_give_back"(returns, ARRAY(SELECT w::bigint FROM json_array_elements_text(waits) AS w)) AS b;
        IF expired > 0 THEN
            RETURN QUERY SELECT 0::bigint, '00000000-0000-0000-0000-000000000000', '', '', ''::bytea,
                NULL::text, NULL::text, NULL::text, 0::bigint, NULL::bigint, expired, NULL::int, 0::bigint;
        END IF;
        moment := clock_timestamp(); -- what has come back may be due by now
    END IF;

    IF halted THEN
        SELECT json_agg(t) INTO listed FROM json_to_recordset(listed) AS t(key bigint, quota int, from_ms bigint)
        WHERE (SELECT p.topic_key FROM "public"."outbox_paused" AS p WHERE p.topic_key = t.key) IS NULL;
        IF listed IS NULL THEN
            RETURN;
        END IF;
    END IF;

    IF arrived OR ordered OR expired > 0 THEN
        SELECT array_agg(t.key), array_agg(t.quota) INTO topics, quotas FROM json_to_recordset(listed) AS t(key bigint, quota int);
    END IF;
    IF arrived THEN
        since := clock_timestamp();
        FOR i IN 1 .. 20 LOOP -- what is of other topics must not hide what is of these
            moment := clock_timestamp();
            SELECT count(*) INTO ready FROM unnest(topics) AS k(key) CROSS JOIN LATERAL (
                SELECT FROM "public"."outbox_stream" AS t
                WHERE t.status = 0 AND t.topic_key = k.key AND t.next_attempt_at <= moment LIMIT most) AS t;
            ready := ready + cardinality(fresh);
            EXIT WHEN (i > 1 OR before) AND most <= ready;
            SELECT * INTO routed FROM "public"."outbox_stream_route"(
                lanes[1], greatest(CASE WHEN ready < most THEN most - ready ELSE most END, 100), most - ready, taker, topics, share);
            fresh := fresh || routed.fresh;
            of := of || routed.fresh_topics;
            alone := alone || routed.alone;
            CONTINUE WHEN routed.more;
            lanes := lanes[2:];
            EXIT WHEN cardinality(lanes) = 0;
        END LOOP;
        moment := clock_timestamp();
    END IF;
    IF arrived OR expired > 0 THEN
        ordered := cardinality(fresh) > 0 OR EXISTS (SELECT FROM "public"."outbox_stream" AS t WHERE t.status = 0);
    END IF;
    IF NOT ordered THEN
        quotas := NULL;
    END IF;
    IF ordered AND before THEN
        SELECT c.* INTO quotas, most, room, larger, runs
        FROM "public"."outbox_stream_claim"(taker, topics, run, quotas, most, room, larger, share, since, fresh, of, alone) AS c;
    END IF;

    SELECT array_agg(p.ctid), array_agg(p.size), sum(p.size) INTO picked, sizes, total
    FROM (SELECT p.ctid, p.size
          FROM ROWS FROM (json_to_recordset(listed) AS (key bigint, quota int, from_ms bigint), unnest(quotas)) AS t(key, quota, from_ms, remaining)
          CROSS JOIN LATERAL (
              SELECT s.ctid, s.size FROM "public"."outbox_state" AS s
              WHERE s.ready AND s.topic_key = t.key AND s.next_attempt_at <= moment
                AND s.next_attempt_at >= coalesce(to_timestamp(t.from_ms / 1000.0), '-infinity')
              ORDER BY s.next_attempt_at, s.seq
              LIMIT coalesce(t.remaining, t.quota)
              FOR UPDATE SKIP LOCKED) AS p
          LIMIT most) AS p;
    IF total > room THEN
        SELECT array_agg(f.row), sum(f.size) INTO picked, total
        FROM (SELECT p.row, p.size, p.place, sum(p.size) OVER (ORDER BY p.place) AS total
              FROM unnest(picked, sizes) WITH ORDINALITY AS p(row, size, place)) AS f
        WHERE f.total <= room OR f.place = 1 AND larger;
    END IF;
    room := room - coalesce(total, 0);
    IF ordered AND NOT before THEN
        keys := ARRAY(SELECT (SELECT s.topic_key FROM "public"."outbox_state" AS s WHERE s.ctid = p) FROM unnest(picked) AS p);
        quotas := ARRAY(SELECT t.quota - (SELECT count(*)::int FROM unnest(keys) AS k WHERE k = t.key) FROM unnest(topics, quotas) AS t(key, quota));
        SELECT c.rows, c.room INTO runs, room
        FROM "public"."outbox_stream_claim"(taker, topics, run, quotas, most - coalesce(cardinality(picked), 0), room,
            larger AND picked IS NULL, share, since, fresh, of, alone) AS c;
    END IF;
    IF picked IS NULL AND coalesce(cardinality(runs), 0) = 0 THEN
        RETURN;
    END IF;
    -- What is more than the buffers of a connection hold is sent while rows are locked: of the router, of streams, of joins. A
    -- client that reads nothing of it for as long as its lease is disconnected. The other columns have about 300 bytes.
    IF budget - room + 300 * (coalesce(cardinality(picked), 0) + coalesce(cardinality(runs), 0)) > 65536
       AND version() LIKE '%linux%' AND current_setting('tcp_user_timeout')::int NOT BETWEEN 1 AND 30000 THEN
        PERFORM set_config('tcp_user_timeout', least(greatest(extract(epoch FROM lease)::bigint * 1000, 1000), 30000)::text, true);
    END IF;

    RETURN QUERY
    WITH taken AS (
        UPDATE "public"."outbox_state" AS s
        SET status = 1, ready = false, owner_token = taker
        WHERE s.ctid = ANY (picked || runs)
        RETURNING s.seq, s.retry_count, s.stream_id, s.stages),
    leased AS (
        INSERT INTO "public"."outbox_lease" AS l (owner_token, worker_id, locked_until, seqs, streams)
        SELECT taker, "public"."outbox_worker_number"(worker), clock_timestamp() + lease, array_agg(t.seq),
               coalesce(array_agg(DISTINCT t.stream_id) FILTER (WHERE t.stream_id IS NOT NULL), '{}')
        FROM taken AS t
        ON CONFLICT (owner_token) DO UPDATE
        SET locked_until = excluded.locked_until, seqs = l.seqs || excluded.seqs, streams = l.streams || excluded.streams)
    SELECT o.seq, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (date_part('epoch', o.created_at) * 1000)::bigint, (date_part('epoch', o.due_at) * 1000)::bigint,
           t.retry_count, t.stages, (date_part('epoch', moment) * 1000)::bigint
    FROM taken AS t
    CROSS JOIN LATERAL (SELECT o.* FROM "public"."outbox" AS o WHERE o.seq = t.seq OFFSET 0) AS o;
END
$outbox$;
