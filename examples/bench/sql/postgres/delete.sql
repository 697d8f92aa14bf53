-- Bare draining: ends claimed messages by key, and deletes them.
WITH ended AS (DELETE FROM {{.State}} WHERE seq = ANY ($1::bigint[]))
DELETE FROM {{.Outbox}} WHERE seq = ANY ($1::bigint[]);
