-- Bare draining: ends claimed messages by key, and deletes them.
BEGIN IMMEDIATE;
DELETE FROM {{.State}} WHERE seq IN (SELECT value FROM json_each(?1));
DELETE FROM {{.Outbox}} WHERE seq IN (SELECT value FROM json_each(?1));
COMMIT;
