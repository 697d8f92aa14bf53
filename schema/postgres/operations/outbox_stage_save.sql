-- Adds stages, which are bits, to a held message in the transaction of what they stand for; returns whether they were there
-- before, or nothing if the message is no longer held with this token. The row stays locked until the transaction ends, so
-- that nobody else can take the message meanwhile.
-- Called as: SELECT * FROM "public"."outbox_stage_save"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_stage_save"(arg json) RETURNS TABLE (saved boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $outbox$
DECLARE
    held   bigint := (arg->>'seq')::bigint;
    token  uuid   := (arg->>'owner')::uuid;
    added  int    := (arg->>'stages')::int;
    before int;
BEGIN
    SELECT coalesce(s.stages, 0) INTO before FROM "public"."outbox_state" AS s WHERE s.seq = held AND s.owner_token = token FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE "public"."outbox_state" AS s SET stages = before | added WHERE s.seq = held AND before & added <> added;
    RETURN QUERY SELECT before & added = added;
END
$outbox$;
