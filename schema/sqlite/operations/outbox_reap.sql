-- Gives back what expired leases hold, about limit messages at a time, which counts an attempt; returns how many came back
-- and how many leases ended. Each is due again after a random time up to its wait, so that a message that kills its process
-- does not take the same others with it each time. Ended messages hold no lease and are never touched. The leases are marked
-- first, by locked_until 0, because time passes between statements. The upserts insert no state: see outbox_claim.
SELECT EXISTS (SELECT 1 FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
               WHERE l.locked_until > 0 AND l.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

INSERT INTO "main"."outbox_lease" (owner_token, worker_id, locked_until, seqs)
SELECT e.owner_token, 0, 0, '[]'
FROM (SELECT l.owner_token, sum(l.size) OVER (ORDER BY l.locked_until, l.owner_token ROWS UNBOUNDED PRECEDING) - l.size AS before
      FROM (SELECT x.owner_token, x.locked_until, json_array_length(x.seqs) AS size
            FROM "main"."outbox_lease" AS x INDEXED BY "outbox_leased"
            WHERE x.locked_until > 0 AND x.locked_until < CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
            ORDER BY x.locked_until
            LIMIT (?1 ->> '$.limit')) AS l) AS e
WHERE e.before < ?1 ->> '$.limit'
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

SELECT changes(), (SELECT count(*) FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" WHERE l.locked_until = 0);

DELETE FROM "main"."outbox_lease" INDEXED BY "outbox_leased" WHERE locked_until = 0;
