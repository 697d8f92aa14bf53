-- Inserts messages as outbox_enqueue does, and into the log: they get a position once they are committed.
-- status 0 is also for the queue, 4 for the log alone.
-- Called as: SELECT "public"."outbox_log_enqueue"($1, $2)
DROP FUNCTION IF EXISTS "public"."outbox_log_enqueue"(json, bytea);
CREATE FUNCTION "public"."outbox_log_enqueue"(arg json, payloads bytea) RETURNS void
LANGUAGE plpgsql AS $outbox$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    WITH added AS (
        INSERT INTO "public"."outbox"
            (message_id, uuid, topic, payload, headers, correlation_id, stream_key, created_at, due_at, next_attempt_at,
             status, processed_at, processed_by)
        SELECT m.id, m.uuid, m.topic, substring(payloads FROM m.at + 1 FOR m.size), coalesce(m.headers_text, m.headers::text),
               m.correlation_id, m.stream_key, moment, due.at, greatest(due.at, moment),
               coalesce(m.status, 0), CASE WHEN m.status = 4 THEN moment END, CASE WHEN m.status = 4 THEN 'log' END
        FROM json_to_recordset(arg) AS m(
                 id uuid, uuid text, topic text, at int, size int, headers json, headers_text text, correlation_id text, stream_key text,
                 due_ms bigint, delay_ms bigint, status int)
        CROSS JOIN LATERAL (
            SELECT coalesce(timestamptz 'epoch' + m.due_ms * interval '1 millisecond',
                            moment + m.delay_ms * interval '1 millisecond') AS at) AS due
        RETURNING seq, message_id, topic)
    INSERT INTO "public"."outbox_log_pending" (seq, message_id, topic)
    SELECT a.seq, a.message_id, a.topic FROM added AS a;
END
$outbox$;
