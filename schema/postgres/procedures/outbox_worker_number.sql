-- The number of a worker, by name. A new worker gets one here; two concurrent calls may each give it one.
CREATE OR REPLACE FUNCTION "public"."outbox_worker_number"(worker text) RETURNS int
LANGUAGE plpgsql AS $outbox$
DECLARE
    number int;
BEGIN
    SELECT w.worker_id INTO number FROM "public"."outbox_worker" AS w WHERE w.name = worker ORDER BY w.worker_id DESC LIMIT 1;
    IF number IS NULL THEN
        INSERT INTO "public"."outbox_worker" (name) VALUES (worker) RETURNING worker_id INTO number;
    END IF;
    RETURN number;
END
$outbox$;
