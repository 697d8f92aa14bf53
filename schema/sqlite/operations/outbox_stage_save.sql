-- Adds stages, which are bits, to a held message in the transaction of what they stand for; returns whether they were there
-- before, or nothing if the message is no longer held with this token. Nobody else can take the message until the transaction
-- ends, because a writer has the whole database. The upsert inserts no state: see outbox_claim.
SELECT coalesce(s.stages, 0) & ?1 ->> '$.stages' = ?1 ->> '$.stages'
FROM "main"."outbox_state" AS s WHERE s.seq = ?1 ->> '$.seq' AND s.owner_token = ?1 ->> '$.owner';

INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at, stages)
SELECT s.seq, 0, 0, ?1 ->> '$.stages'
FROM "main"."outbox_state" AS s WHERE s.seq = ?1 ->> '$.seq' AND s.owner_token = ?1 ->> '$.owner'
ON CONFLICT (seq) DO UPDATE SET stages = coalesce(stages, 0) | excluded.stages;
