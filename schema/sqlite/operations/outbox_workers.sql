-- Lists workers, those that came last first, with the number of claims and messages that each holds, and until when. Of each
-- claim, what it took is counted, whether it has ended since or not.
WITH claims AS MATERIALIZED (
    SELECT l.worker_id, count(*) AS claims, sum(json_array_length(l.seqs)) AS messages, max(l.locked_until) AS until
    FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
    WHERE l.locked_until > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
    GROUP BY l.worker_id)
SELECT w.name, w.started_at, coalesce((SELECT c.claims FROM claims AS c WHERE +c.worker_id = w.worker_id), 0),
       coalesce((SELECT c.messages FROM claims AS c WHERE +c.worker_id = w.worker_id), 0),
       (SELECT c.until FROM claims AS c WHERE +c.worker_id = w.worker_id)
FROM (SELECT w.* FROM "main"."outbox_worker" AS w ORDER BY w.worker_id DESC LIMIT (?1 ->> '$.limit')) AS w;
