-- Takes up to limit ready messages of the listed topics that are not paused under one lease, and first gives back what
-- expired leases hold, which counts an attempt; a row with seq 0 has their number in retry_count. Each of those is due
-- again after a random time up to its wait, so that a message that kills its process does not take the same others with it
-- each time. Topics are tried in the order given, each up to its quota, until the next message does not fit into what is
-- left of bytes (payload and headers); with first, the very first may be larger. from_ms of a topic is ignored: there are
-- no dead entries to skip here. Leases to give back are marked first, by locked_until 0, because time passes between
-- statements. The claimed messages are in seqs of the lease, for the statements that follow; what the same owner claimed
-- before becomes a nested array. Messages of ordered streams come last, and only if some are ready: then half of each quota
-- is left for them, and a quota of one is left now and then. The streams that have waited longest are taken; of each, the
-- first due messages, in order and without a gap, up to a run, and fewer if many streams are ready, so that many handlers
-- can work at once. share is that of this worker among several, in virtual partitions: of the streams that have waited
-- longest, as many for each worker as are wanted, those between low and high come first, and with them those that have
-- waited for patience_ms. A LIMIT cannot differ by topic here, so each topic is read up to the limit, and the quota is
-- applied to the result. The limit is a subquery, so that the argument is not parsed again for each topic. The upserts
-- insert no state: each chosen row exists, and an upsert finds it by its key. UPDATE ... WHERE seq IN (...) would scan the
-- table if statistics say that it is almost empty, and so would a join by seq: contents are found by their ids.
SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.topics') AS t
               WHERE (EXISTS (SELECT 1 FROM "main"."outbox_state" AS s INDEXED BY "outbox_ready"
                              WHERE s.status = 0 AND s.topic_key = t.value ->> '$.key'
                                AND s.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))
                      OR EXISTS (SELECT 1 FROM "main"."outbox_stream" AS r INDEXED BY "outbox_stream_ready"
                                 WHERE r.status = 0 AND r.topic_key = t.value ->> '$.key'
                                   AND r.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)))
                 AND NOT EXISTS (SELECT 1 FROM "main"."outbox_paused" AS h WHERE h.topic_key = t.value ->> '$.key'))
    OR (?1 ->> '$.give_back' > 0
        AND EXISTS (SELECT 1 FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
                    WHERE l.locked_until > 0 AND l.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)));

INSERT INTO "main"."outbox_lease" (owner_token, worker_id, locked_until, seqs)
SELECT e.owner_token, 0, 0, '[]'
FROM (SELECT l.owner_token, sum(l.size) OVER (ORDER BY l.locked_until, l.owner_token ROWS UNBOUNDED PRECEDING) - l.size AS before
      FROM (SELECT x.owner_token, x.locked_until, json_array_length(x.seqs) AS size
            FROM "main"."outbox_lease" AS x INDEXED BY "outbox_leased"
            WHERE x.locked_until > 0 AND x.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
            ORDER BY x.locked_until
            LIMIT (?1 ->> '$.give_back')) AS l) AS e
WHERE e.before < ?1 ->> '$.give_back'
ON CONFLICT (owner_token) DO UPDATE SET locked_until = 0;

INSERT INTO "main"."outbox_attempt" (seq, attempt_id, happened_at, worker_id, attempt, outcome, error)
SELECT h.seq, coalesce((SELECT max(a.attempt_id) FROM "main"."outbox_attempt" AS a WHERE a.seq = h.seq), 0) + 1,
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), h.worker_id, h.retry_count + 1, 4,
       'the lease expired: the worker stopped or did not renew it in time'
FROM (SELECT b.*, row_number() OVER (PARTITION BY b.stream_id ORDER BY b.seq) AS place
      FROM (SELECT i.value AS seq, l.worker_id,
                   (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = l.owner_token) AS retry_count,
                   CASE WHEN l.streams IS NOT NULL THEN (SELECT s.stream_id FROM "main"."outbox_state" AS s WHERE s.seq = i.value) END AS stream_id
            FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" CROSS JOIN json_tree(l.seqs) AS i
            WHERE l.locked_until = 0 AND i.type = 'integer') AS b
      WHERE b.retry_count IS NOT NULL) AS h
WHERE h.stream_id IS NULL OR h.place = 1
ON CONFLICT (seq, attempt_id) DO NOTHING;

INSERT INTO "main"."outbox_state" (seq, topic_key, retry_count, next_attempt_at)
SELECT h.seq, 0, h.retry_count + h.spent, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + h.spent * (random() & 1048575)
       * coalesce(?1 ->> ('$.waits[' || min(h.retry_count, json_array_length(?1, '$.waits') - 1) || ']'), 0) / 1048576
FROM (SELECT b.*, b.stream_id IS NULL OR row_number() OVER (PARTITION BY b.stream_id ORDER BY b.seq) = 1 AS spent
      FROM (SELECT i.value AS seq,
                   (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = l.owner_token) AS retry_count,
                   CASE WHEN l.streams IS NOT NULL THEN (SELECT s.stream_id FROM "main"."outbox_state" AS s WHERE s.seq = i.value) END AS stream_id
            FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" CROSS JOIN json_tree(l.seqs) AS i
            WHERE l.locked_until = 0 AND i.type = 'integer') AS b
      WHERE b.retry_count IS NOT NULL) AS h
WHERE true
ON CONFLICT (seq) DO UPDATE
SET status = CASE WHEN stream_id IS NULL THEN 0 ELSE 5 END, owner_token = NULL, retry_count = excluded.retry_count,
    next_attempt_at = excluded.next_attempt_at;

SELECT 0, '00000000-0000-0000-0000-000000000000', '', '', x'', NULL, NULL, NULL, 0, NULL, changes(), NULL, 0 WHERE changes() > 0;

DELETE FROM "main"."outbox_lease" INDEXED BY "outbox_leased" WHERE locked_until = 0;

INSERT OR IGNORE INTO "main"."outbox_worker" (name, started_at)
VALUES (?1 ->> '$.worker', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

WITH topics AS MATERIALIZED (
    SELECT e.key AS turn, e.value ->> '$.key' AS topic_key,
           (e.value ->> '$.quota') - CASE WHEN EXISTS (
               SELECT 1 FROM "main"."outbox_stream" AS r INDEXED BY "outbox_stream_ready"
               WHERE r.status = 0 AND r.topic_key = e.value ->> '$.key'
                 AND r.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)) THEN ((e.value ->> '$.quota') + (random() & 1)) / 2 ELSE 0 END AS quota
    FROM json_each(?1, '$.topics') AS e
    WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_paused" AS h WHERE h.topic_key = e.value ->> '$.key'))
INSERT INTO "main"."outbox_lease" (owner_token, worker_id, locked_until, seqs)
SELECT ?1 ->> '$.owner', (SELECT w.worker_id FROM "main"."outbox_worker" AS w WHERE w.name = ?1 ->> '$.worker'),
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms'), json_group_array(summed.seq)
FROM (SELECT chosen.seq, row_number() OVER (ORDER BY chosen.turn, chosen.place) AS place,
             sum(chosen.size) OVER (ORDER BY chosen.turn, chosen.place ROWS UNBOUNDED PRECEDING) AS total
      FROM (SELECT r.value AS seq, t.turn, r.key AS place,
                   (SELECT s.size FROM "main"."outbox_state" AS s WHERE s.seq = r.value) AS size
            FROM topics AS t,
                 json_each((SELECT json_group_array(d.seq)
                            FROM (SELECT s.seq FROM "main"."outbox_state" AS s INDEXED BY "outbox_ready"
                                  WHERE s.status = 0 AND s.topic_key = t.topic_key
                                    AND s.next_attempt_at <= (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))
                                  ORDER BY s.next_attempt_at, s.seq
                                  LIMIT (SELECT ?1 ->> '$.limit')) AS d)) AS r
            WHERE r.key < t.quota
            ORDER BY t.turn, r.key
            LIMIT (?1 ->> '$.limit')) AS chosen) AS summed
WHERE summed.total <= (SELECT coalesce(?1 ->> '$.bytes', 9223372036854775807))
   OR summed.place = 1 AND (SELECT coalesce(?1 ->> '$.first', 1))
HAVING count(*) > 0
ON CONFLICT (owner_token) DO UPDATE
SET locked_until = excluded.locked_until, seqs = json_insert(excluded.seqs, '$[#]', json(seqs));

INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at, status, owner_token)
SELECT i.value, 0, 0, 1, (SELECT ?1 ->> '$.owner')
FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner' AND changes() > 0)) AS i
WHERE i.type = 'integer'
ON CONFLICT (seq) DO UPDATE SET status = 1, owner_token = excluded.owner_token;

SELECT o.seq, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at,
       (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = o.seq),
       (SELECT s.stages FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner' AND changes() > 0)) AS i
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id"
        ON o.message_id = (SELECT c.message_id FROM "main"."outbox" AS c WHERE c.seq = i.value)
WHERE i.type = 'integer';

SELECT EXISTS (SELECT 1 FROM json_each(?1, '$.topics') AS t
               WHERE EXISTS (SELECT 1 FROM "main"."outbox_stream" AS r INDEXED BY "outbox_stream_ready"
                             WHERE r.status = 0 AND r.topic_key = t.value ->> '$.key'
                               AND r.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))
                 AND NOT EXISTS (SELECT 1 FROM "main"."outbox_paused" AS h WHERE h.topic_key = t.value ->> '$.key'));

WITH taken AS MATERIALIZED (
    SELECT i.value AS seq, (SELECT s.topic_key FROM "main"."outbox_state" AS s WHERE s.seq = i.value) AS topic_key,
           (SELECT s.size FROM "main"."outbox_state" AS s WHERE s.seq = i.value) AS size
    FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner')) AS i
    WHERE i.type = 'integer'),
arg AS MATERIALIZED (
    SELECT (?1 ->> '$.limit') - (SELECT count(*) FROM taken) AS most, coalesce(?1 ->> '$.run', 32) AS run,
           coalesce(?1 ->> '$.bytes', 9223372036854775807) - (SELECT coalesce(sum(k.size), 0) FROM taken AS k) AS room,
           coalesce(?1 ->> '$.first', 1) AND NOT EXISTS (SELECT 1 FROM taken) AS larger,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment,
           CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - (?1 ->> '$.share.patience_ms') AS patient,
           coalesce(?1 ->> '$.share.low', 0) AS low, coalesce(?1 ->> '$.share.high', 9999) AS high,
           min((?1 ->> '$.limit') * coalesce(?1 ->> '$.share.workers', 1), 1000) AS looked),
topics AS MATERIALIZED (
    SELECT e.key AS turn, e.value ->> '$.key' AS topic_key,
           (e.value ->> '$.quota') - (SELECT count(*) FROM taken AS k WHERE +k.topic_key = e.value ->> '$.key') AS quota
    FROM json_each(?1, '$.topics') AS e
    WHERE NOT EXISTS (SELECT 1 FROM "main"."outbox_paused" AS h WHERE h.topic_key = e.value ->> '$.key')),
streams AS MATERIALIZED (
    SELECT t.turn, t.quota, r.key AS nth, r.value AS stream_id
    FROM topics AS t,
         json_each((SELECT json_group_array(d.stream_id)
                    FROM (SELECT w.stream_id
                          FROM (SELECT r.stream_id, r.next_attempt_at FROM "main"."outbox_stream" AS r INDEXED BY "outbox_stream_ready"
                                WHERE r.status = 0 AND r.topic_key = t.topic_key AND r.next_attempt_at <= (SELECT moment FROM arg)
                                ORDER BY r.next_attempt_at, r.stream_id
                                LIMIT (SELECT looked FROM arg)) AS w
                          ORDER BY w.next_attempt_at > (SELECT patient FROM arg)
                                   AND abs(w.stream_id % 10000) NOT BETWEEN (SELECT low FROM arg) AND (SELECT high FROM arg), w.next_attempt_at, w.stream_id
                          LIMIT (SELECT ?1 ->> '$.limit')) AS d)) AS r
    WHERE r.key < t.quota),
heads AS MATERIALIZED (
    SELECT n.turn, n.quota, n.nth, n.stream_id, q.key AS place, q.value AS seq,
           (SELECT s.size FROM "main"."outbox_state" AS s
            WHERE s.seq = q.value AND s.status = 5 AND s.next_attempt_at <= (SELECT moment FROM arg)) AS size
    FROM streams AS n,
         json_each((SELECT json_group_array(h.seq)
                    FROM (SELECT q.seq FROM "main"."outbox_queue" AS q WHERE q.stream_id = n.stream_id ORDER BY q.seq
                          LIMIT (SELECT max(1, min(a.run, (a.most + c.n - 1) / max(c.n, 1)))
                                 FROM arg AS a, (SELECT count(*) AS n FROM streams) AS c)) AS h)) AS q),
runs AS MATERIALIZED (
    SELECT w.*, row_number() OVER (PARTITION BY w.turn ORDER BY w.place, w.nth) AS topic_place
    FROM (SELECT h.*, count(*) FILTER (WHERE h.size IS NULL) OVER (PARTITION BY h.turn, h.nth ORDER BY h.place) AS gaps FROM heads AS h) AS w
    WHERE w.gaps = 0)
INSERT INTO "main"."outbox_lease" (owner_token, worker_id, locked_until, seqs, streams)
SELECT ?1 ->> '$.owner', (SELECT w.worker_id FROM "main"."outbox_worker" AS w WHERE w.name = ?1 ->> '$.worker'),
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms'), json_group_array(f.seq), json_group_array(DISTINCT f.stream_id)
FROM (SELECT r.seq, r.stream_id, row_number() OVER (ORDER BY r.turn, r.topic_place) AS place,
             sum(r.size) OVER (ORDER BY r.turn, r.topic_place ROWS UNBOUNDED PRECEDING) AS total
      FROM runs AS r WHERE r.topic_place <= r.quota) AS f, arg AS a
WHERE f.place <= a.most AND (f.total <= a.room OR f.place = 1 AND a.larger)
HAVING count(*) > 0
ON CONFLICT (owner_token) DO UPDATE
SET locked_until = excluded.locked_until, seqs = json_insert(excluded.seqs, '$[#]', json(seqs)),
    streams = json_insert(excluded.streams, '$[#]', json(coalesce(streams, '[]')));

INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at, status, owner_token)
SELECT i.value, 0, 0, 1, (SELECT ?1 ->> '$.owner')
FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner' AND changes() > 0)) AS i
WHERE i.type = 'integer'
ON CONFLICT (seq) DO UPDATE SET status = 1, owner_token = excluded.owner_token;

SELECT o.seq, o.message_id, o.uuid, o.topic, o.payload, o.headers, o.correlation_id, o.stream_key, o.created_at, o.due_at,
       (SELECT s.retry_count FROM "main"."outbox_state" AS s WHERE s.seq = o.seq),
       (SELECT s.stages FROM "main"."outbox_state" AS s WHERE s.seq = o.seq), CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner' AND changes() > 0)) AS i
CROSS JOIN "main"."outbox" AS o INDEXED BY "outbox_message_id"
        ON o.message_id = (SELECT c.message_id FROM "main"."outbox" AS c WHERE c.seq = i.value)
WHERE i.type = 'integer';

INSERT INTO "main"."outbox_stream" (stream_id, topic_key, next_attempt_at, run_last, owner_token, status)
SELECT n.stream_id, 0, 0, max(n.seq), n.owner_token, 1
FROM (SELECT i.value AS seq, l.owner_token,
             (SELECT s.stream_id FROM "main"."outbox_state" AS s WHERE s.seq = i.value AND s.owner_token = l.owner_token) AS stream_id
      FROM "main"."outbox_lease" AS l CROSS JOIN json_each(l.seqs) AS i
      WHERE l.owner_token = ?1 ->> '$.owner' AND l.streams IS NOT NULL AND i.type = 'integer') AS n
WHERE n.stream_id IS NOT NULL
GROUP BY n.stream_id
ON CONFLICT (stream_id) DO UPDATE SET status = 1, owner_token = excluded.owner_token, run_last = max(run_last, excluded.run_last);

-- Streams from which nothing can be taken, because their head was ended or put off outside a run.
INSERT INTO "main"."outbox_free" (stream_id)
SELECT r.value
FROM json_each(?1, '$.topics') AS t,
     json_each((SELECT json_group_array(d.stream_id)
                FROM (SELECT r.stream_id FROM "main"."outbox_stream" AS r INDEXED BY "outbox_stream_ready"
                      WHERE r.status = 0 AND r.topic_key = t.value ->> '$.key'
                        AND r.next_attempt_at <= (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER))
                      ORDER BY r.next_attempt_at, r.stream_id
                      LIMIT 10) AS d)) AS r
WHERE NOT coalesce((SELECT s.status = 5 AND s.next_attempt_at <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
                    FROM "main"."outbox_state" AS s
                    WHERE s.seq = (SELECT q.seq FROM "main"."outbox_queue" AS q WHERE q.stream_id = r.value ORDER BY q.seq LIMIT 1)), 0);
