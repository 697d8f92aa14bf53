-- Gives back what expired leases hold, about limit messages at a time, which counts an attempt; returns how many came back
-- and how many leases ended. Ended messages hold no lease and are never touched.
-- Called as: SELECT * FROM "public"."outbox_reap"($1)
DROP FUNCTION IF EXISTS "public"."outbox_reap"(json);
CREATE FUNCTION "public"."outbox_reap"(arg json) RETURNS TABLE (affected bigint, leases bigint)
LANGUAGE plpgsql AS $outbox$
BEGIN
    RETURN QUERY
    SELECT b.messages::bigint, b.leases::bigint
    FROM "public"."outbox_give_back"((arg->>'limit')::int, ARRAY(SELECT w::bigint FROM json_array_elements_text(arg->'waits') AS w)) AS b;
END
$outbox$;
