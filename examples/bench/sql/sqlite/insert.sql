-- Bare publishing: one message.
BEGIN IMMEDIATE;

INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, topic_key, created_at) VALUES (?1, ?2, ?3, ?4, ?5, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

INSERT INTO {{.State}} (seq, topic_key, next_attempt_at) VALUES (last_insert_rowid(), ?5, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

COMMIT;
