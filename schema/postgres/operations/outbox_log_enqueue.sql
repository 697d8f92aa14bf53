-- Inserts messages like outbox_enqueue, and into the log: they get a position once they are committed. With log_only they
-- are for the log alone and have no state.
-- Called as: SELECT "public"."outbox_log_enqueue"($1, $2)
DROP FUNCTION IF EXISTS "public"."outbox_log_enqueue"(json, bytea);
CREATE FUNCTION "public"."outbox_log_enqueue"(arg json, payloads bytea) RETURNS void
LANGUAGE plpgsql AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    WITH added AS (
        INSERT INTO "public"."outbox" (message_id, uuid, topic, topic_key, payload, headers, correlation_id, stream_key, stream_id, created_at, due_at)
        SELECT m.id, m.uuid, m.topic, m.topic_key, substring(payloads FROM m.at + 1 FOR m.size), coalesce(m.headers_text, m.headers::text),
               m.correlation_id, m.stream_key, m.stream_id, moment,
               coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond', moment + m.delay_ms * interval '1 millisecond')
        FROM json_to_recordset(arg) AS m(
                 id uuid, uuid text, topic text, topic_key bigint, at int, size int, headers json, headers_text text, correlation_id text, stream_key text, stream_id bigint,
                 due_ms bigint, delay_ms bigint)
        RETURNING seq, message_id, topic, topic_key, stream_id, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS size),
    arrived AS (
        INSERT INTO "public"."outbox_arrival" (seq, stream_id, topic_key)
        SELECT a.seq, a.stream_id, a.topic_key FROM added AS a WHERE a.stream_id IS NOT NULL AND arg->0->>'log_only' IS NULL),
    queued AS (
        INSERT INTO "public"."outbox_state" (seq, topic_key, stream_id, next_attempt_at, size, flags, status)
        SELECT a.seq, a.topic_key, a.stream_id, greatest(a.due_at, moment), a.size, 2, CASE WHEN a.stream_id IS NULL THEN 0 ELSE 5 END
        FROM added AS a WHERE arg->0->>'log_only' IS NULL)
    INSERT INTO "public"."outbox_log_pending" (seq, message_id, topic)
    SELECT a.seq, a.message_id, a.topic FROM added AS a;
END
$outbox$;
