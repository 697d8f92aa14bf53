-- What tells whether the outbox is being served: the database's clock, leases that run and that have expired, dead letters, and what
-- waits for a position in the log. Counts end at counted. A lease stays for a while after its messages have ended: of the expired
-- ones, the oldest looked are counted only if they still hold a message or a stream.
WITH empty AS MATERIALIZED (
    SELECT f.owner_token
    FROM (SELECT l.owner_token, l.seqs, l.streams FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
          WHERE l.locked_until <= CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) ORDER BY l.locked_until
          LIMIT coalesce(?1 ->> '$.looked', 0)) AS f
    WHERE NOT EXISTS (SELECT 1 FROM json_tree(f.seqs) AS i
                      WHERE i.type = 'integer' AND (SELECT s.owner_token FROM "main"."outbox_state" AS s WHERE s.seq = i.value) = f.owner_token)
      AND NOT EXISTS (SELECT 1 FROM json_tree(f.streams) AS i
                      WHERE i.type = 'integer' AND (SELECT t.owner_token FROM "main"."outbox_stream" AS t WHERE t.stream_id = i.value) = f.owner_token))
SELECT n.moment,
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased" WHERE l.locked_until > n.moment LIMIT (?1 ->> '$.counted'))),
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
                              WHERE l.locked_until <= n.moment AND l.owner_token NOT IN (SELECT e.owner_token FROM empty AS e) LIMIT (?1 ->> '$.counted'))),
       (SELECT l.locked_until FROM "main"."outbox_lease" AS l INDEXED BY "outbox_leased"
        WHERE l.locked_until <= n.moment AND l.owner_token NOT IN (SELECT e.owner_token FROM empty AS e) ORDER BY l.locked_until LIMIT 1),
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead" WHERE s.status = 3 LIMIT (?1 ->> '$.counted'))),
       (SELECT s.processed_at FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead" WHERE s.status = 3 ORDER BY s.processed_at LIMIT 1),
       (SELECT s.processed_at FROM "main"."outbox_state" AS s INDEXED BY "outbox_dead" WHERE s.status = 3 ORDER BY s.processed_at DESC LIMIT 1),
       (SELECT count(*) FROM (SELECT 1 FROM "main"."outbox_log_pending" AS p LIMIT (?1 ->> '$.counted'))),
       (SELECT o.created_at FROM "main"."outbox" AS o WHERE o.seq = (SELECT p.seq FROM "main"."outbox_log_pending" AS p ORDER BY p.seq LIMIT 1)),
       coalesce(n.last, 0), (SELECT g.logged_at FROM "main"."outbox_log" AS g WHERE g.position = n.last)
FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment,
             (SELECT c.position FROM "main"."outbox_log_counter" AS c WHERE c.id = 1) AS last) AS n;
