-- Workers, those that live first, then those that were seen last, with what they hold: of the leases that run longest, and of
-- each of these the first sample messages.
WITH held AS MATERIALIZED (
    SELECT h.worker_id, count(DISTINCT h.owner_token) AS leases, count(h.topic_key) AS messages, count(DISTINCT h.stream_id) AS streams
    FROM (SELECT l.worker_id, l.owner_token,
                 (SELECT s.topic_key FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = l.owner_token) AS topic_key,
                 (SELECT s.stream_id FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = l.owner_token) AS stream_id
          FROM (SELECT x.owner_token, x.worker_id, x.seqs FROM "main"."outbox_lease" AS x INDEXED BY "outbox_leased"
                ORDER BY x.locked_until DESC
                LIMIT (?1 ->> '$.leases')) AS l
          LEFT JOIN json_each(l.seqs) AS i ON i.key < ?1 ->> '$.sample') AS h
    GROUP BY h.worker_id)
SELECT w.worker_id, w.name, w.started_at, w.seen_at, w.lives_until, w.stopped_at,
       coalesce((SELECT h.leases FROM held AS h WHERE +h.worker_id = w.worker_id), 0),
       coalesce((SELECT h.messages FROM held AS h WHERE +h.worker_id = w.worker_id), 0),
       coalesce((SELECT h.streams FROM held AS h WHERE +h.worker_id = w.worker_id), 0),
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM "main"."outbox_worker" AS w INDEXED BY "outbox_worker_lives"
ORDER BY w.lives_until DESC
LIMIT (?1 ->> '$.limit');
