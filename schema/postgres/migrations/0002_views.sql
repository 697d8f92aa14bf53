-- The outbox for people: states by name and payloads as text. Bytes that are no text are shown escaped.
CREATE OR REPLACE FUNCTION "public"."outbox_text"(payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $outbox$
BEGIN
    RETURN convert_from(payload, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN encode(payload, 'escape');
END
$outbox$;

CREATE OR REPLACE VIEW "public"."outbox_view" AS
SELECT o.seq, o.message_id, o.uuid, o.topic, o.correlation_id, o.stream_key,
       CASE o.status WHEN 0 THEN 'ready' WHEN 1 THEN 'in progress' WHEN 2 THEN 'done' WHEN 3 THEN 'failed' WHEN 4 THEN 'log only' END AS state,
       o.status = 2 AS is_processed, o.retry_count, o.last_error, o.headers, "public"."outbox_text"(o.payload) AS payload_text,
       o.created_at, o.due_at, o.next_attempt_at, o.locked_until, o.owner_token, o.processed_at, o.processed_by
FROM "public"."outbox" AS o;
