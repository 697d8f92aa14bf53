-- Fills the tables of joins: the messages 0 to ?1 - 1 are steps, ?2 a join.
UPDATE {{.State}} SET flags = 1;

INSERT INTO {{.Join}} (join_id, expected_steps, created_at, last_updated_at)
WITH RECURSIVE j (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM j WHERE n + 1 <= (?1 - 1) / ?2)
SELECT printf('01990000-0000-7000-9000-%012x', j.n), min(?2, ?1 - j.n * ?2), c.moment, c.moment
FROM j, (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c;

INSERT INTO {{.JoinSize}} (join_id, attached) SELECT join_id, expected_steps FROM {{.Join}};

INSERT INTO {{.JoinMember}} (join_id, message_id, created_at)
WITH RECURSIVE m (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM m WHERE n + 1 < ?1)
SELECT printf('01990000-0000-7000-9000-%012x', m.n / ?2), printf('01990000-0000-7000-8000-%012x', m.n),
       CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM m;
