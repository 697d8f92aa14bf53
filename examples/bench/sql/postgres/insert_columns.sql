-- Bare publishing: many rows, one array a column.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[]);
