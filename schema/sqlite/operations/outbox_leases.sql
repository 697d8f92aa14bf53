-- Leases, those that run longest first, with their worker and the topics of what they hold. Of each lease the first sample
-- messages are looked at.
WITH held AS MATERIALIZED (
    SELECT l.owner_token, l.worker_id, l.locked_until, l.seqs FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
    ORDER BY l.locked_until DESC
    LIMIT (?1 ->> '$.limit')),
counted AS MATERIALIZED (
    SELECT h.owner_token,
           (SELECT s.topic_key FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = h.owner_token) AS topic_key, i.value AS seq
    FROM held AS h CROSS JOIN json_each(h.seqs) AS i
    WHERE i.key < ?1 ->> '$.sample')
SELECT t.owner_token, (SELECT w.name FROM "main"."outbox_worker" AS w WHERE w.worker_id = t.worker_id), t.locked_until,
       (SELECT o.topic FROM "main"."outbox" AS o WHERE o.seq = t.first), t.messages
FROM (SELECT h.owner_token, h.worker_id, h.locked_until, min(c.seq) AS first, count(c.seq) AS messages
      FROM held AS h LEFT JOIN counted AS c ON c.owner_token = h.owner_token AND c.topic_key IS NOT NULL
      GROUP BY h.owner_token, c.topic_key) AS t;
