-- Makes messages steps of a join; existing steps stay as they are. A message that has ended is counted at once. Returns
-- refusals (seq -1 no such join, -2 it has ended, -3 it is full, -4 no such message, -6 it is for the log alone and never
-- ends), which roll everything back, or the join if it has ended. Flag 1 tells settling to count the step. A message without
-- a state was deleted on acknowledgement, or is for the log alone. Messages are found by their ids, whatever the statistics
-- say: see outbox_settle. What is the same for all steps is a subquery, so that the argument is not parsed again for each.
SELECT -1, ?1 ->> '$.id', NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id');

WITH steps AS MATERIALIZED (
    SELECT DISTINCT i.value AS id FROM json_each(?1, '$.messages') AS i
    WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_join_member" AS m WHERE m.join_id = (SELECT ?1 ->> '$.id') AND m.message_id = i.value))
SELECT -2, j.join_id, NULL, NULL, NULL, NULL, NULL
FROM "main"."outbox_join" AS j
WHERE j.join_id = ?1 ->> '$.id' AND j.status <> 0 AND (SELECT count(*) FROM steps) > 0
UNION ALL
SELECT -3, j.join_id, NULL, NULL, NULL, NULL, NULL
FROM "main"."outbox_join" AS j
WHERE j.join_id = ?1 ->> '$.id'
  AND (SELECT z.attached FROM "main"."outbox_join_size" AS z WHERE z.join_id = j.join_id) + (SELECT count(*) FROM steps) > j.expected_steps
UNION ALL
SELECT -4, s.id, NULL, NULL, NULL, NULL, NULL
FROM steps AS s
WHERE NOT (SELECT ?1 ->> '$.by_report') AND NOT EXISTS (SELECT 1 FROM "main"."outbox" AS o WHERE o.message_id = s.id)
UNION ALL
SELECT -6, s.id, NULL, NULL, NULL, NULL, NULL
FROM steps AS s
WHERE NOT (SELECT ?1 ->> '$.by_report')
  AND NOT EXISTS (SELECT 1 FROM "main"."outbox_state" AS t
                  WHERE t.seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = s.id))
  AND (EXISTS (SELECT 1 FROM "main"."outbox_log" AS l INDEXED BY "outbox_log_message" WHERE l.message_id = s.id)
       OR EXISTS (SELECT 1 FROM "main"."outbox_log_pending" AS p INDEXED BY "outbox_log_pending_message" WHERE p.message_id = s.id))
LIMIT 1;

UPDATE "main"."outbox_join_size"
SET attached = attached + (
    SELECT count(DISTINCT i.value) FROM json_each(?1, '$.messages') AS i
    WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_join_member" AS m WHERE m.join_id = (SELECT ?1 ->> '$.id') AND m.message_id = i.value))
WHERE join_id = ?1 ->> '$.id';

WITH steps AS MATERIALIZED (
    SELECT (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value) AS seq
    FROM json_each(?1, '$.messages') AS i
    WHERE NOT (SELECT ?1 ->> '$.by_report')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_join_member" AS m WHERE m.join_id = (SELECT ?1 ->> '$.id') AND m.message_id = i.value))
INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at)
SELECT s.seq, 0, 0 FROM steps AS s
WHERE EXISTS (SELECT 1 FROM "main"."outbox_state" AS t WHERE t.seq = s.seq)
ON CONFLICT (seq) DO UPDATE SET flags = flags | 1;

WITH ended AS MATERIALIZED (
    SELECT DISTINCT o.message_id, coalesce((SELECT t.status FROM "main"."outbox_state" AS t WHERE t.seq = o.seq), 2) AS status
    FROM json_each(?1, '$.messages') AS i
    CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = i.value
    WHERE NOT (SELECT ?1 ->> '$.by_report')
      AND NOT EXISTS (SELECT 1 FROM "main"."outbox_join_member" AS m WHERE m.join_id = (SELECT ?1 ->> '$.id') AND m.message_id = i.value))
INSERT INTO "main"."outbox_join" (join_id, created_at, completed_steps, failed_steps, last_updated_at)
SELECT ?1 ->> '$.id', 0, d.done, d.dead, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM (SELECT sum(e.status = 2) AS done, sum(e.status = 3) AS dead FROM ended AS e) AS d
WHERE d.done + d.dead > 0 AND (SELECT j.status FROM "main"."outbox_join" AS j WHERE j.join_id = ?1 ->> '$.id') = 0
ON CONFLICT (join_id) DO UPDATE
SET completed_steps = completed_steps + excluded.completed_steps, failed_steps = failed_steps + excluded.failed_steps,
    last_updated_at = excluded.last_updated_at;

INSERT INTO "main"."outbox_join_member" (join_id, message_id, ends_by, status, created_at)
SELECT (SELECT ?1 ->> '$.id'), i.value, (SELECT ?1 ->> '$.by_report'),
       CASE WHEN (SELECT ?1 ->> '$.by_report') THEN 0
            ELSE CASE coalesce((SELECT t.status FROM "main"."outbox_state" AS t
                                WHERE t.seq = (SELECT o.seq FROM "main"."outbox" AS o WHERE o.message_id = i.value)), 2)
                     WHEN 2 THEN 1 WHEN 3 THEN 2 ELSE 0 END END,
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM json_each(?1, '$.messages') AS i
WHERE true
ON CONFLICT (join_id, message_id) DO NOTHING;

UPDATE "main"."outbox_join" INDEXED BY "outbox_join_decided"
SET status = verdict, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE status = 0 AND verdict <> 0
RETURNING 0, join_id,
    (SELECT o.topic FROM "outbox_join_wait" AS w CROSS JOIN "outbox" AS o INDEXED BY "outbox_message_id" ON o.message_id = w.message_id
     WHERE w.join_id = "outbox_join".join_id),
    status, expected_steps, completed_steps, failed_steps;
