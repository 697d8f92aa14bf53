-- The outbox for people: contents and states in one, states by name, and payloads as text. Bytes that are not text are shown
-- escaped.
CREATE OR REPLACE FUNCTION "public"."outbox_text"(payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $outbox$
BEGIN
    RETURN convert_from(payload, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN encode(payload, 'escape');
END
$outbox$;

DO $outbox$
BEGIN
    IF to_regclass('"public"."outbox_view"') IS NULL THEN
        CREATE VIEW "public"."outbox_view" AS
        SELECT o.seq, o.message_id, o.uuid, o.topic, o.correlation_id, o.stream_key,
               CASE s.status WHEN 0 THEN 'ready' WHEN 5 THEN 'ready' WHEN 1 THEN 'in progress' WHEN 2 THEN 'done' WHEN 3 THEN 'failed' ELSE 'not queued' END AS state,
               s.status, coalesce(s.status = 2, false) AS is_processed, s.retry_count,
               (SELECT a.error FROM "public"."outbox_attempt" AS a WHERE a.seq = o.seq AND a.error IS NOT NULL ORDER BY a.attempt_id DESC LIMIT 1) AS last_error,
               o.headers, "public"."outbox_text"(o.payload) AS payload_text,
               o.created_at, o.due_at, s.next_attempt_at, l.locked_until, s.owner_token, s.processed_at, w.name AS processed_by,
               (SELECT string_agg(b.name, ', ' ORDER BY b.bit)
                FROM (VALUES (1, 'Stored'), (2, 'EventStored'), (4, 'Published'), (8, 'ReceptorProcessed'), (16, 'PerspectiveProcessed'),
                             (256, 'own 0'), (512, 'own 1'), (1024, 'own 2'), (2048, 'own 3'), (4096, 'own 4'), (8192, 'own 5'), (16384, 'own 6'),
                             (32768, 'own 7'), (65536, 'own 8'), (131072, 'own 9'), (262144, 'own 10'), (524288, 'own 11'), (1048576, 'own 12'),
                             (2097152, 'own 13'), (4194304, 'own 14'), (8388608, 'own 15')) AS b(bit, name)
                WHERE (coalesce(s.stages, 0) | 1) & b.bit <> 0) AS stages
        FROM "public"."outbox" AS o
        LEFT JOIN "public"."outbox_state" AS s ON s.seq = o.seq
        LEFT JOIN "public"."outbox_lease" AS l ON l.owner_token = s.owner_token
        LEFT JOIN "public"."outbox_worker" AS w ON w.worker_id = s.worker_id;
    END IF;
END
$outbox$;
