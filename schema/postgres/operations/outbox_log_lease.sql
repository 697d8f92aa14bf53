-- Makes owner the only reader of a topic for a consumer group (take), or renews that, and moves the group on to position,
-- but never back. A reader with a higher version takes the lease from one with a lower version at once. Returns the state of
-- the group, held or not, and the last position given; without take, nothing if there is no such group. With lease_ms 0 it
-- gives the lease back; with take and lease_ms 0 it creates the group, and leaves one that there is alone. The topic '' is the
-- whole log. A group is moved only from where its reader believes it to be, to a message in the log. Otherwise the database is
-- older than the reader, and messages that have been given the reader's positions since are yet to be read. With once, nothing
-- is done and returned if the group has passed the position: of two transactions that move it there, one succeeds.
-- Called as: SELECT * FROM "public"."outbox_log_lease"($1)
CREATE OR REPLACE FUNCTION "public"."outbox_log_lease"(arg json) RETURNS TABLE (
    held boolean, "position" bigint, last bigint, tried bigint, attempts int, version bigint, shape bigint, interrupted boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $outbox$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    taker   uuid        := (arg->>'owner')::uuid;
    lease   bigint      := (arg->>'lease_ms')::bigint;
    take    boolean     := (arg->>'take')::boolean;
    target  bigint      := (arg->>'position')::bigint;
    newer   bigint      := (arg->>'version')::bigint;
    spent   bigint      := (arg->>'tried')::bigint;
    once    boolean     := coalesce((arg->>'once')::boolean, false);
    highest bigint;
    there   boolean     := true;
BEGIN
    IF take AND NOT EXISTS (
        SELECT FROM "public"."outbox_log_group" AS g WHERE g.group_name = arg->>'group' AND g.topic = arg->>'topic') THEN
        INSERT INTO "public"."outbox_log_group" (group_name, topic) VALUES (arg->>'group', arg->>'topic')
        ON CONFLICT (group_name, topic) DO NOTHING;
    END IF;
    SELECT c.position INTO highest FROM "public"."outbox_log_counter" AS c WHERE c.id = 1;
    IF arg->>'message' <> '' THEN
        there := EXISTS (SELECT FROM "public"."outbox_log" AS l WHERE l.position = target AND l.message_id = (arg->>'message')::uuid);
    END IF;

    UPDATE "public"."outbox_log_group" AS g
    SET position = CASE WHEN g.owner_token = taker AND there AND target <= highest AND g.position >= (arg->>'from')::bigint
                        THEN greatest(g.position, target) ELSE g.position END,
        tried = CASE WHEN g.owner_token = taker AND spent > 0 THEN spent ELSE g.tried END,
        attempts = CASE WHEN g.owner_token = taker AND spent > 0 THEN (arg->>'attempts')::int ELSE g.attempts END,
        version = newer,
        shape = (arg->>'shape')::bigint,
        interrupted = CASE WHEN g.owner_token <> taker THEN true WHEN g.owner_token = taker AND g.position < target THEN false ELSE g.interrupted END,
        owner_token = CASE WHEN lease > 0 THEN taker END,
        locked_until = CASE WHEN lease > 0 THEN moment + lease * interval '1 millisecond' END
    WHERE g.group_name = arg->>'group' AND g.topic = arg->>'topic'
      AND (g.owner_token = taker OR take AND lease > 0 AND (g.owner_token IS NULL OR g.locked_until < moment OR g.version < newer))
      AND (NOT once OR g.position < target);
    IF once AND NOT FOUND THEN
        RETURN;
    END IF;

    RETURN QUERY
    SELECT coalesce(g.owner_token = taker, false), g.position, highest, g.tried, g.attempts, g.version, g.shape, g.interrupted
    FROM "public"."outbox_log_group" AS g
    WHERE g.group_name = arg->>'group' AND g.topic = arg->>'topic';
END
$outbox$;
