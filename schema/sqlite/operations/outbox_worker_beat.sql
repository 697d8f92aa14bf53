-- The heartbeat of a worker: it lives for live_ms from now. With start, it has just started; with stop, it has ended. Returns
-- how many workers live, and how many of them have a lower number.
INSERT INTO "main"."outbox_worker" (name, started_at, seen_at, lives_until, stopped_at)
SELECT ?1 ->> '$.worker', m.moment, m.moment,
       CASE WHEN ?1 ->> '$.stop' THEN m.moment ELSE m.moment + (?1 ->> '$.live_ms') END, CASE WHEN ?1 ->> '$.stop' THEN m.moment END
FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS m
WHERE ?1 ->> '$.worker' IS NOT NULL
ON CONFLICT (name) DO UPDATE
SET started_at = CASE WHEN ?1 ->> '$.start' THEN excluded.started_at ELSE started_at END,
    seen_at = excluded.seen_at, lives_until = excluded.lives_until, stopped_at = excluded.stopped_at;

SELECT count(*), count(*) FILTER (WHERE w.worker_id < (SELECT o.worker_id FROM "main"."outbox_worker" AS o WHERE o.name = ?1 ->> '$.worker'))
FROM "main"."outbox_worker" AS w INDEXED BY "outbox_worker_lives"
WHERE w.lives_until > CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER);
