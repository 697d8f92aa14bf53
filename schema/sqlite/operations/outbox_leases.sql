-- Leases, those that run longest first, with their worker and the topics of what they hold. Of each lease the first sample
-- messages are looked at.
WITH held AS MATERIALIZED (
    SELECT l.owner_token, l.worker_id, l.locked_until, l.seqs FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
    ORDER BY l.locked_until DESC
    LIMIT (?1 ->> '$.limit')),
counted AS MATERIALIZED (
    SELECT h.owner_token, h.worker_id, h.locked_until, i.value AS seq,
           (SELECT s.topic_key FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = h.owner_token) AS topic_key
    FROM held AS h LEFT JOIN json_tree(h.seqs) AS i ON i.type = 'integer' AND i.key < ?1 ->> '$.sample')
SELECT t.owner_token, (SELECT w.name FROM "main"."outbox_worker" AS w WHERE w.worker_id = t.worker_id), t.locked_until,
       (SELECT o.topic FROM "main"."outbox" AS o WHERE o.seq = t.first AND t.topic_key IS NOT NULL), t.messages
FROM (SELECT c.owner_token, c.worker_id, c.locked_until, c.topic_key, min(c.seq) AS first, count(c.topic_key) AS messages,
             max(c.topic_key IS NOT NULL) OVER (PARTITION BY c.owner_token) AS holds
      FROM counted AS c GROUP BY c.owner_token, c.topic_key) AS t
WHERE t.topic_key IS NOT NULL OR NOT t.holds
