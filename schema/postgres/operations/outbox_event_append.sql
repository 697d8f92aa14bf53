-- Appends events to a stream. One compare-and-set moves the stream's row to the version after the last event, before anything
-- is inserted: a conflict is a row that was not moved. expected: -2 any version, -1 any but none, 0 none, or the version
-- itself. Returns one row, with kind 1 and the last version; kind 2 and the stream's version if that is another; kind 3 if the
-- stream is archived. If the caller has named the events and some of them are there, nothing is written and they are returned
-- instead, with kind 4: that is looked up under the stream's lock, and before the version, so that a repeated call does not
-- conflict with itself. The version goes into the headers here, because only here is it known.
-- Called as: SELECT * FROM "public"."outbox_event_append"($1, $2)
CREATE OR REPLACE FUNCTION "public"."outbox_event_append"(arg json, payloads bytea) RETURNS TABLE (
    kind int, version bigint, message_id text, stream text, topic text, headers text, payload bytea)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment   timestamptz      := clock_timestamp();
    wanted   text COLLATE "C" := arg->>'stream';
    expected bigint           := (arg->>'expected')::bigint;
    many     bigint           := (arg->>'count')::bigint;
    number   bigint;
    last     bigint;
    actual   bigint;
    closed   boolean;
    locked   boolean          := true;
    ids      uuid[];
BEGIN
    IF (arg->>'named')::boolean THEN
        ids := ARRAY(SELECT (e->>'id')::uuid FROM json_array_elements(arg->'events') AS e);
    END IF;
    LOOP
        IF ids IS NOT NULL THEN
            PERFORM FROM "public"."outbox_event_stream" AS s WHERE s.name = wanted FOR UPDATE;
            locked := FOUND;
            RETURN QUERY
            SELECT 4, coalesce(e.version, 0), o.message_id::text, coalesce(s.name, '')::text, o.topic::text, coalesce(o.headers, ''), o.payload
            FROM unnest(ids) AS i
            CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.message_id = i LIMIT 1) AS o
            LEFT JOIN LATERAL (SELECT v.* FROM "public"."outbox_event" AS v WHERE v.seq = o.seq LIMIT 1) AS e ON true
            LEFT JOIN LATERAL (SELECT t.* FROM "public"."outbox_event_stream" AS t WHERE t.stream_no = e.stream_no LIMIT 1) AS s ON true;
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
        UPDATE "public"."outbox_event_stream" AS s SET version = s.version + many
        WHERE s.name = wanted AND NOT s.archived AND locked -- or the same call may have begun the stream since the look
          AND CASE expected WHEN -2 THEN true WHEN -1 THEN s.version > s.hidden WHEN 0 THEN s.version = s.hidden
                            ELSE s.version = expected AND s.version > s.hidden END
        RETURNING s.stream_no, s.version INTO number, last;
        EXIT WHEN FOUND;
        IF expected IN (-2, 0) THEN
            INSERT INTO "public"."outbox_event_stream" AS s (name, version) VALUES (wanted, many)
            ON CONFLICT (name) DO NOTHING
            RETURNING s.stream_no, s.version INTO number, last;
            EXIT WHEN FOUND;
        END IF;
        SELECT CASE WHEN s.version > s.hidden THEN s.version ELSE 0 END, s.archived INTO actual, closed
        FROM "public"."outbox_event_stream" AS s WHERE s.name = wanted;
        IF closed THEN
            RETURN QUERY SELECT 3, actual, '', '', '', '', ''::bytea;
            RETURN;
        END IF;
        actual := coalesce(actual, 0);
        -- Otherwise somebody has committed the stream's first events since the update.
        IF expected = -1 AND actual = 0 OR expected >= 0 AND actual <> expected THEN
            RETURN QUERY SELECT 2, actual, '', '', '', '', ''::bytea;
            RETURN;
        END IF;
    END LOOP;

    WITH added AS (
        INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at, due_at)
        SELECT m.id, m.uuid, m.topic, m.topic_key, substring(payloads FROM m.at + 1 FOR m.size),
               '{"outbox_event_version":"' || (last - many + 1 + m.n) || '",' || substr(coalesce(m.headers_text, m.headers::text), 2),
               m.correlation_id, m.stream_key, m.stream_id, moment,
               coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond', moment + m.delay_ms * interval '1 millisecond')
        FROM json_to_recordset(arg->'events') AS m(
                 n int, id uuid, uuid text, topic text, topic_key bigint, at int, size int, headers json, headers_text text, correlation_id text, stream_key text,
                 stream_id bigint, due_ms bigint, delay_ms bigint)
        RETURNING seq, message_id, topic, octet_length(payload) + octet_length(headers) AS size),
    numbered AS (
        INSERT INTO "public"."outbox_event" (stream_no, version, seq, size)
        SELECT number, last - many + row_number() OVER (ORDER BY a.seq), a.seq, a.size FROM added AS a)
    INSERT INTO "public"."outbox_log_pending" (seq, message_id, topic)
    SELECT a.seq, a.message_id, a.topic FROM added AS a;

    -- A statement of its own: most events are for the log alone, and each table of a statement costs some microseconds.
    IF (arg->>'queued')::boolean THEN
        WITH added AS MATERIALIZED (
            SELECT e.seq, e.size, o.topic_key, o.stream_id, o.due_at
            FROM "public"."outbox_event" AS e CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.seq = e.seq LIMIT 1) AS o
            WHERE e.stream_no = number AND e.version > last - many),
        arrived AS (
            INSERT INTO "public"."outbox_arrival" (seq, stream_id, topic_key, lane)
            SELECT a.seq, a.stream_id, a.topic_key, a.stream_id & 3 FROM added AS a WHERE a.stream_id IS NOT NULL)
        INSERT INTO "public"."outbox_state" (seq, topic_key, stream_id, next_attempt_at, size, flags, stages, status, ready)
        SELECT a.seq, a.topic_key, a.stream_id, greatest(a.due_at, moment), a.size, 2, 2, CASE WHEN a.stream_id IS NULL THEN 0 ELSE 5 END, a.stream_id IS NULL FROM added AS a;
    END IF;
    RETURN QUERY SELECT 1, last, '', '', '', '', ''::bytea;
END
$outbox$;
