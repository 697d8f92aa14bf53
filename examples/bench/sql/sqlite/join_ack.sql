-- Bare draining of steps: ends claimed messages by key, their steps, and the joins that have none left.
BEGIN IMMEDIATE;

UPDATE {{.State}}
SET status = 2, owner_token = NULL, processed_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE seq IN (SELECT value FROM json_each(?1));

UPDATE {{.JoinMember}} SET status = 1
WHERE message_id IN (SELECT o.message_id FROM json_each(?1) AS s INNER JOIN {{.Outbox}} AS o ON o.seq = s.value);

UPDATE {{.Join}} AS j
SET completed_steps = j.completed_steps + d.done, last_updated_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER),
    status = iif(j.completed_steps + d.done >= j.expected_steps, 1, 0)
FROM (SELECT m.join_id, count(*) AS done
      FROM json_each(?1) AS s
      INNER JOIN {{.Outbox}} AS o ON o.seq = s.value
      INNER JOIN {{.JoinMember}} AS m ON m.message_id = o.message_id
      GROUP BY m.join_id) AS d
WHERE j.join_id = d.join_id;

COMMIT;
