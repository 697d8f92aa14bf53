-- Lists the topics with messages waiting in streams, with their number (counted up to limit), the oldest due time, and how
-- many streams are blocked. It jumps from topic to topic in the indexes; leased streams are found by their leases.
WITH RECURSIVE served AS MATERIALIZED (
    SELECT i.value AS stream_id,
           (SELECT t.run_last FROM "main"."outbox_stream" AS t WHERE t.stream_id = i.value AND t.owner_token = l.owner_token) AS last,
           (SELECT t.topic_key FROM "main"."outbox_stream" AS t WHERE t.stream_id = i.value) AS topic_key
    FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" CROSS JOIN json_tree(l.streams) AS i
    WHERE l.locked_until > 0 AND i.type = 'integer'),
ready(topic_key) AS (
    SELECT (SELECT t.topic_key FROM "main"."outbox_stream" AS t INDEXED BY "outbox_stream_ready" WHERE t.status = 0 ORDER BY t.topic_key LIMIT 1)
    UNION ALL
    SELECT (SELECT t.topic_key FROM "main"."outbox_stream" AS t INDEXED BY "outbox_stream_ready"
            WHERE t.status = 0 AND t.topic_key > r.topic_key ORDER BY t.topic_key LIMIT 1)
    FROM ready AS r WHERE r.topic_key IS NOT NULL),
blocked(topic_key) AS (
    SELECT (SELECT t.topic_key FROM "main"."outbox_stream" AS t INDEXED BY "outbox_stream_blocked" WHERE t.status = 2 ORDER BY t.topic_key LIMIT 1)
    UNION ALL
    SELECT (SELECT t.topic_key FROM "main"."outbox_stream" AS t INDEXED BY "outbox_stream_blocked"
            WHERE t.status = 2 AND t.topic_key > b.topic_key ORDER BY t.topic_key LIMIT 1)
    FROM blocked AS b WHERE b.topic_key IS NOT NULL),
topics AS MATERIALIZED (
    SELECT r.topic_key FROM ready AS r WHERE r.topic_key IS NOT NULL
    UNION SELECT b.topic_key FROM blocked AS b WHERE b.topic_key IS NOT NULL
    UNION SELECT s.topic_key FROM served AS s WHERE s.last IS NOT NULL),
waiting AS MATERIALIZED ( -- the streams that are served, or may be
    SELECT s.topic_key, s.stream_id, s.last, 0 AS since FROM served AS s WHERE s.last IS NOT NULL
    UNION ALL
    SELECT t.topic_key, d.value, 0, d.key
    FROM topics AS t,
         json_each((SELECT json_group_array(r.stream_id)
                    FROM (SELECT r.stream_id FROM "main"."outbox_stream" AS r INDEXED BY "outbox_stream_ready"
                          WHERE r.status = 0 AND r.topic_key = t.topic_key
                            AND r.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
                          ORDER BY r.next_attempt_at LIMIT (?1 ->> '$.limit')) AS r)) AS d),
counted AS MATERIALIZED (
    SELECT t.topic_key, c.moment,
           min((SELECT sum((SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_queue" AS q WHERE q.stream_id = w.stream_id AND q.seq > w.last
                                                  LIMIT (?1 ->> '$.limit'))))
                FROM waiting AS w WHERE +w.topic_key = t.topic_key), ?1 ->> '$.limit') AS waiting,
           (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_stream" AS b INDEXED BY "outbox_stream_blocked"
                                  WHERE b.status = 2 AND b.topic_key = t.topic_key LIMIT (?1 ->> '$.limit'))) AS blocked,
           (SELECT (SELECT q.seq FROM "main"."outbox_queue" AS q WHERE q.stream_id = w.stream_id AND q.seq > w.last ORDER BY q.seq LIMIT 1) AS seq
            FROM waiting AS w WHERE +w.topic_key = t.topic_key AND seq IS NOT NULL ORDER BY w.since LIMIT 1) AS head,
           (SELECT (SELECT q.seq FROM "main"."outbox_queue" AS q WHERE q.stream_id = b.stream_id ORDER BY q.seq LIMIT 1)
            FROM "main"."outbox_stream" AS b INDEXED BY "outbox_stream_blocked" WHERE b.status = 2 AND b.topic_key = t.topic_key LIMIT 1) AS stopped
    FROM topics AS t, (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c)
SELECT (SELECT o.topic FROM "main"."outbox" AS o WHERE o.seq = coalesce(n.head, n.stopped)), coalesce(n.waiting, 0), n.oldest, n.moment - n.oldest, n.blocked
FROM (SELECT c.*, coalesce(min((SELECT s.next_attempt_at FROM "main"."outbox_state" AS s WHERE s.seq = c.head), c.moment), c.moment) AS oldest
      FROM counted AS c) AS n
WHERE n.waiting > 0 OR n.blocked > 0;
