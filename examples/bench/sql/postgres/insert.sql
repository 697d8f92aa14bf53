-- Bare publishing: one row.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload) VALUES ($1, $2, $3, $4);
