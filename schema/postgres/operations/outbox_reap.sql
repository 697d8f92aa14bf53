-- Gives back what expired leases hold, about limit messages at a time, which counts an attempt; returns how many came back
-- and how many leases ended. Ended messages hold no lease and are never touched. First it moves the place where routing begins
-- back to arrivals before it. There are none, unless numbers were given again (TRUNCATE … RESTART IDENTITY), or a prepared
-- transaction was committed after a restart, when the name of its writer was no longer known.
-- Called as: SELECT * FROM "public"."outbox_reap"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_reap"(arg json) RETURNS TABLE (affected bigint, leases bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $outbox$
DECLARE
    missed bigint;
BEGIN
    missed := (SELECT a.arrival_id FROM "public"."outbox_arrival" AS a
               WHERE a.arrival_id <= (SELECT r.low FROM "public"."outbox_router" AS r WHERE r.id = 1) ORDER BY a.arrival_id LIMIT 1);
    IF missed IS NOT NULL THEN
        UPDATE "public"."outbox_router" AS r SET low = missed - 1, high = missed - 1, writers = '{}'
        WHERE r.id = (SELECT l.id FROM "public"."outbox_router" AS l WHERE l.id = 1 FOR UPDATE SKIP LOCKED) AND r.low >= missed;
    END IF;
    RETURN QUERY
    SELECT b.messages::bigint, b.leases::bigint
    FROM "public"."outbox_give_back"((arg->>'limit')::int, ARRAY(SELECT w::bigint FROM json_array_elements_text(arg->'waits') AS w)) AS b;
END
$outbox$;
