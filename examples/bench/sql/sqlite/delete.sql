-- Bare draining: ends claimed messages by key, and deletes their states.
DELETE FROM {{.State}} WHERE seq IN (SELECT value FROM json_each(?1));
