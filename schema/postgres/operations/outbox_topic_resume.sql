-- Resumes a paused topic; returns whether it was paused.
-- Called as: SELECT * FROM "public"."outbox_topic_resume"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_topic_resume"(arg json) RETURNS TABLE (resumed boolean)
LANGUAGE sql SET enable_seqscan = off AS $outbox$
    WITH gone AS (
        DELETE FROM "public"."outbox_paused" AS p WHERE p.topic_key = (arg->>'topic_key')::bigint RETURNING p.topic_key)
    SELECT EXISTS (SELECT FROM gone);
$outbox$;
