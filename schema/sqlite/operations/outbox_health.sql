-- What tells whether the outbox is being served: the database's clock, leases that run and that have expired, dead letters, and what
-- waits for a position in the log. Counts end at counted.
SELECT n.moment,
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" WHERE l.locked_until > n.moment LIMIT (?1 ->> '$.counted'))),
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" WHERE l.locked_until <= n.moment LIMIT (?1 ->> '$.counted'))),
       (SELECT l.locked_until FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" WHERE l.locked_until <= n.moment ORDER BY l.locked_until LIMIT 1),
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead" WHERE s.status = 3 LIMIT (?1 ->> '$.counted'))),
       (SELECT s.processed_at FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead" WHERE s.status = 3 ORDER BY s.processed_at LIMIT 1),
       (SELECT s.processed_at FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead" WHERE s.status = 3 ORDER BY s.processed_at DESC LIMIT 1),
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_log_pending" AS p LIMIT (?1 ->> '$.counted'))),
       (SELECT o.created_at FROM "main"."outbox" AS o WHERE o.seq = (SELECT p.seq FROM "main"."outbox_log_pending" AS p ORDER BY p.seq LIMIT 1)),
       coalesce(n.last, 0), (SELECT g.logged_at FROM "main"."outbox_log" AS g WHERE g.position = n.last)
FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment,
             (SELECT c.position FROM "main"."outbox_log_counter" AS c WHERE c.id = 1) AS last) AS n;
