-- Lists dead letters of consumer groups in log order: of one group and topic or of all, after a position. A reader asks
-- constantly for the requeued ones of its group and topic, which looks at nothing else.
-- Called as: SELECT * FROM "public"."outbox_log_dead_list"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_dead_list"(arg json) RETURNS TABLE (
    "position" bigint, message_id text, uuid text, topic text, payload bytea, headers text, correlation_id text, stream_key text,
    created_ms bigint, due_ms bigint, retry_count int, group_name text, attempts int, reason text, failed_ms bigint, requeued boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
#variable_conflict use_column
BEGIN
    IF (arg->>'requeued')::boolean THEN
        RETURN QUERY
        SELECT d.position, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
               (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint, 0,
               d.group_name::text, d.attempts, d.reason, floor(extract(epoch FROM d.failed_at) * 1000)::bigint, d.requeued
        FROM (SELECT k.* FROM "public"."outbox_log_dead" AS k
              WHERE k.requeued AND k.group_name = (arg->>'group') COLLATE "C" AND k.topic = (arg->>'topic') COLLATE "C"
                AND k.position > (arg->>'after')::bigint
              ORDER BY k.group_name, k.topic, k.position
              LIMIT (arg->>'limit')::int) AS d
        CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.message_id = d.message_id LIMIT 1) AS o;
        RETURN;
    END IF;

    RETURN QUERY
    SELECT d.position, o.message_id::text, o.uuid, o.topic::text, o.payload, o.headers, o.correlation_id, o.stream_key::text,
           (extract(epoch FROM o.created_at) * 1000)::bigint, (extract(epoch FROM o.due_at) * 1000)::bigint, 0,
           d.group_name::text, d.attempts, d.reason, floor(extract(epoch FROM d.failed_at) * 1000)::bigint, d.requeued
    FROM (SELECT k.* FROM "public"."outbox_log_dead" AS k
          WHERE (arg->>'group' IS NULL OR k.group_name = (arg->>'group') COLLATE "C")
            AND (arg->>'topic' IS NULL OR k.topic = (arg->>'topic') COLLATE "C")
            AND k.position > (arg->>'after')::bigint
          ORDER BY k.position
          LIMIT (arg->>'limit')::int) AS d
    CROSS JOIN LATERAL (SELECT m.* FROM "public"."outbox" AS m WHERE m.message_id = d.message_id LIMIT 1) AS o;
END
$outbox$;
