-- Counts ended messages in the joins whose steps they are, except steps that end by a report. Returns the joins that have
-- ended. The settings of its caller, outbox_settle, apply here.
CREATE OR REPLACE FUNCTION "public"."outbox_join_count"(done uuid[], dead uuid[]) RETURNS TABLE (
    seq bigint, id text, topic text, status int, expected int, completed int, failed int)
LANGUAGE plpgsql AS $outbox$
#variable_conflict use_column
DECLARE
    joins     uuid[];
    completed int[];
    failed    int[];
BEGIN
    WITH counted AS (
        UPDATE "public"."outbox_join_member" AS m
        SET status = s.status
        FROM (SELECT unnest(done) AS id, 1 AS status UNION ALL SELECT unnest(dead), 2) AS s
        WHERE m.message_id = ANY (ARRAY[s.id]) AND m.status = 0 AND m.ends_by = 0
        RETURNING m.join_id, m.status)
    SELECT array_agg(c.join_id), array_agg(c.completed), array_agg(c.failed)
    INTO joins, completed, failed
    FROM (SELECT join_id, count(*) FILTER (WHERE status = 1)::int AS completed, count(*) FILTER (WHERE status = 2)::int AS failed
          FROM counted GROUP BY join_id) AS c;
    IF joins IS NOT NULL THEN
        RETURN QUERY SELECT * FROM "public"."outbox_join_advance"(joins, completed, failed);
    END IF;
END
$outbox$;
