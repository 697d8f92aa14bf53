-- Adds entries to an inbox, and touches existing ones; returns what outbox_entry_get returns. It waits for an entry that is
-- not committed yet. It goes in order of the keys, so that two calls do not wait for each other.
-- Called as: SELECT * FROM "public"."outbox_entry_add"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_entry_add"(arg json) RETURNS TABLE (
    n int, content_hash bytea, first_seen_ms bigint, last_seen_ms bigint, seen int, queue_id text, processed_ms bigint,
    status int, attempts int, last_error text, result bytea)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $outbox$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    INSERT INTO "public"."outbox_entry" AS e (source, message_id, handler, content_hash, first_seen_at, last_seen_at, queue_id, processed_at)
    SELECT w.source, w.message_id, w.handler, decode(w.hash, 'hex'), moment, moment, w.queue_id, CASE WHEN w.queue_id IS NULL THEN moment END
    FROM json_to_recordset(arg->'entries') AS w(source text, message_id text, handler text, hash text, queue_id uuid)
    ORDER BY w.handler COLLATE "C", w.source COLLATE "C", w.message_id COLLATE "C"
    ON CONFLICT (handler, source, message_id) DO UPDATE SET seen = e.seen + 1, last_seen_at = clock_timestamp();

    RETURN QUERY SELECT * FROM "public"."outbox_entry_get"(arg);
END
$outbox$;
