-- Bare draining: ends claimed messages by key, and deletes them.
DELETE FROM {{.Outbox}} WHERE seq IN (SELECT value FROM json_each(?1));
