-- Gives back what expired leases hold, about limit messages at a time, which counts an attempt; returns how many came back
-- and how many leases ended. Ended messages hold no lease and are never touched. First it moves the place where routing begins
-- back to arrivals before it. There are none, unless numbers were given again (TRUNCATE … RESTART IDENTITY), or a prepared
-- transaction was committed after a restart, when the name of its writer was no longer known.
-- Called as: SELECT * FROM "public"."outbox_reap"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_reap"(arg json) RETURNS TABLE (affected bigint, leases bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $outbox$
DECLARE
    missed record;
BEGIN
    FOR missed IN
        SELECT r.lane, a.arrival_id FROM "public"."outbox_router" AS r
        CROSS JOIN LATERAL (
            SELECT a.arrival_id FROM "public"."outbox_arrival" AS a
            WHERE a.lane = r.lane AND a.arrival_id <= r.low ORDER BY a.arrival_id LIMIT 1) AS a
    LOOP
        UPDATE "public"."outbox_router" AS r SET low = missed.arrival_id - 1, high = missed.arrival_id - 1, writers = '{}'
        WHERE r.lane = (SELECT l.lane FROM "public"."outbox_router" AS l WHERE l.lane = missed.lane FOR UPDATE SKIP LOCKED)
          AND r.low >= missed.arrival_id;
    END LOOP;
    RETURN QUERY
    SELECT b.messages::bigint, b.leases::bigint
    FROM "public"."outbox_give_back"((arg->>'limit')::int, ARRAY(SELECT w::bigint FROM json_array_elements_text(arg->'waits') AS w)) AS b;
END
$outbox$;
