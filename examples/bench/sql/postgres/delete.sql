-- Bare draining: ends claimed messages by key, and deletes their states.
DELETE FROM {{.State}} WHERE seq = ANY ($1::bigint[]);
