-- Begins a join with counters of zero. Without expected it is open: steps are added until it is sealed.
-- Called as: SELECT * FROM "public"."outbox_join_start"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_join_start"(arg json) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $outbox$
BEGIN
    INSERT INTO "public"."outbox_join" (join_id, grouping_key, expected_steps, quorum, fail_fast, metadata)
    VALUES ((arg->>'id')::uuid, arg->>'grouping_key', (arg->>'expected')::int, (arg->>'quorum')::int,
            (arg->>'fail_fast')::boolean, arg->>'metadata');
    INSERT INTO "public"."outbox_join_size" (join_id) VALUES ((arg->>'id')::uuid);
END
$outbox$;
