-- Fills the table: the messages ?1 to ?1 + ?2 - 1, spread over ?3 topics. Every hundredth is due in an hour if ?4 is true.
-- ?5 is their payload. Ids grow as those of publishers do.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, created_at, next_attempt_at)
WITH RECURSIVE m (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM m WHERE n + 1 < ?1 + ?2)
SELECT printf('01990000-0000-7000-8000-%012x', m.n), CAST(m.n AS TEXT), 'bench-' || (m.n % ?3),
       ?5, c.moment,
       c.moment + iif(?4 AND m.n / ?3 % 100 = 99, 3600000, 0)
FROM m, (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c;
