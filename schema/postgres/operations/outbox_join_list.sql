-- Reads joins: the one with an id; or a page of those with a grouping key or of those that are pending, in order of id after a
-- given one; or of all, from the newest on, before a given one.
-- Called as: SELECT * FROM "public"."outbox_join_list"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_list"(arg json) RETURNS TABLE (
    join_id text, grouping_key text, expected int, completed int, failed int, quorum int, fail_fast boolean, status int,
    metadata text, created_ms bigint, updated_ms bigint)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $outbox$
#variable_conflict use_column
DECLARE
    most   int  := (arg->>'limit')::int;
    after  uuid := coalesce((arg->>'after')::uuid, '00000000-0000-0000-0000-000000000000');
    before uuid := coalesce((arg->>'before')::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    page   uuid[];
BEGIN
    IF arg->>'id' IS NOT NULL THEN
        page := ARRAY[(arg->>'id')::uuid];
    ELSIF arg->>'grouping_key' IS NOT NULL THEN
        page := ARRAY(SELECT j.join_id FROM "public"."outbox_join" AS j
                      WHERE j.grouping_key = (arg->>'grouping_key') COLLATE "C" AND j.join_id > after
                      ORDER BY j.grouping_key, j.join_id LIMIT most);
    ELSIF (arg->>'pending')::boolean THEN
        page := ARRAY(SELECT j.join_id FROM "public"."outbox_join" AS j
                      WHERE j.status = 0 AND j.join_id > after ORDER BY j.join_id LIMIT most);
    ELSE
        page := ARRAY(SELECT j.join_id FROM "public"."outbox_join" AS j
                      WHERE j.join_id < before ORDER BY j.join_id DESC LIMIT most);
    END IF;
    RETURN QUERY
    SELECT j.join_id::text, j.grouping_key::text, j.expected_steps, j.completed_steps, j.failed_steps, j.quorum, j.fail_fast,
           j.status::int, j.metadata, (extract(epoch FROM j.created_at) * 1000)::bigint,
           (extract(epoch FROM j.last_updated_at) * 1000)::bigint
    FROM unnest(page) WITH ORDINALITY AS p(id, place) CROSS JOIN LATERAL (
        SELECT * FROM "public"."outbox_join" AS j WHERE j.join_id = p.id OFFSET 0) AS j
    ORDER BY p.place;
END
$outbox$;
