-- Fills the tables: the messages ?1 to ?1 + ?2 - 1, spread over ?3 topics, whose keys are ?6. Every hundredth is due in an hour
-- if ?4 is true. ?5 is their payload. Ids grow as those of publishers do.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, topic_key, payload, created_at)
WITH RECURSIVE m (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM m WHERE n + 1 < ?1 + ?2)
SELECT printf('01990000-0000-7000-8000-%012x', m.n), CAST(m.n AS TEXT), 'bench-' || (m.n % ?3),
       ?6 ->> (m.n % ?3), ?5, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
FROM m;

INSERT INTO {{.State}} (seq, topic_key, next_attempt_at, size)
SELECT o.seq, o.topic_key, o.created_at + iif(?4 AND CAST(o.uuid AS INTEGER) / ?3 % 100 = 99, 3600000, 0), length(?5)
FROM {{.Outbox}} AS o WHERE o.seq > last_insert_rowid() - ?2;
