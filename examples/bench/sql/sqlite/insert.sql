-- Bare publishing: one row.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, created_at, next_attempt_at)
VALUES (?1, ?2, ?3, ?4, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));
