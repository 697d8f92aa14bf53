-- Bare draining: ends claimed messages by key, and deletes them.
DELETE FROM {{.Outbox}} WHERE seq = ANY ($1::bigint[]);
