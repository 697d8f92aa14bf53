-- Bare draining of steps: ends claimed messages by key, their steps, and the joins that have none left.
WITH acked AS (
    UPDATE {{.State}} SET status = 2, owner_token = NULL, processed_at = now()
    WHERE seq = ANY ($1::bigint[])
    RETURNING seq),
counted AS (
    UPDATE {{.JoinMember}} AS m SET status = 1
    FROM acked AS a INNER JOIN {{.Outbox}} AS o ON o.seq = a.seq
    WHERE m.message_id = o.message_id
    RETURNING m.join_id)
UPDATE {{.Join}} AS j
SET completed_steps = j.completed_steps + d.done, last_updated_at = now(),
    status = CASE WHEN j.completed_steps + d.done >= j.expected_steps THEN 1 ELSE 0 END
FROM (SELECT c.join_id, count(*) AS done FROM counted AS c GROUP BY c.join_id) AS d
WHERE j.join_id = d.join_id;
