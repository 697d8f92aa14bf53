-- Takes messages of a blocked stream under a lease, to be discarded: up to limit, due or not. Returns them and, under seq 0,
-- if the stream is blocked, the last that waits there now, which is an argument of the next call, so that a series of calls
-- does not take messages that arrived since. The upserts insert no state: see outbox_claim.
SELECT 0, coalesce(?1 ->> '$.until', (SELECT q.seq FROM "main"."outbox_queue" AS q WHERE q.stream_id = t.stream_id ORDER BY q.seq DESC LIMIT 1))
FROM "main"."outbox_stream" AS t WHERE t.stream_id = ?1 ->> '$.stream_id' AND t.status = 2;

INSERT OR IGNORE INTO "main"."outbox_worker" (name, started_at)
VALUES (?1 ->> '$.worker', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

INSERT INTO "main"."outbox_lease" (owner_token, worker_id, locked_until, seqs, streams)
SELECT ?1 ->> '$.owner', (SELECT w.worker_id FROM "main"."outbox_worker" AS w WHERE w.name = ?1 ->> '$.worker'),
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + (?1 ->> '$.lease_ms'), json_group_array(k.seq), json_array(?1 ->> '$.stream_id')
FROM (SELECT q.seq FROM "main"."outbox_queue" AS q
      WHERE q.stream_id = (SELECT t.stream_id FROM "main"."outbox_stream" AS t WHERE t.stream_id = ?1 ->> '$.stream_id' AND t.status = 2)
        AND q.seq <= coalesce(?1 ->> '$.until', 9223372036854775807)
        AND (SELECT s.status FROM "main"."outbox_state" AS s WHERE s.seq = q.seq) = 5
      ORDER BY q.seq
      LIMIT (?1 ->> '$.limit')) AS k
HAVING count(*) > 0;

INSERT INTO "main"."outbox_state" (seq, topic_key, next_attempt_at, status, owner_token)
SELECT i.value, 0, 0, 1, (SELECT ?1 ->> '$.owner')
FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner')) AS i WHERE true
ON CONFLICT (seq) DO UPDATE SET status = 1, owner_token = excluded.owner_token;

INSERT INTO "main"."outbox_stream" (stream_id, topic_key, next_attempt_at, run_last, owner_token, status)
SELECT ?1 ->> '$.stream_id', 0, 0, max(i.value), ?1 ->> '$.owner', 1
FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner')) AS i
HAVING count(*) > 0
ON CONFLICT (stream_id) DO UPDATE SET status = 1, owner_token = excluded.owner_token, run_last = max(run_last, excluded.run_last);

SELECT i.value, coalesce(?1 ->> '$.until', (SELECT q.seq FROM "main"."outbox_queue" AS q WHERE q.stream_id = ?1 ->> '$.stream_id' ORDER BY q.seq DESC LIMIT 1))
FROM json_each((SELECT l.seqs FROM "main"."outbox_lease" AS l WHERE l.owner_token = ?1 ->> '$.owner')) AS i;
