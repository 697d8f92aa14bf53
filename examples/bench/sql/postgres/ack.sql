-- Bare draining: ends claimed messages by key.
UPDATE {{.State}} SET status = 2, owner_token = NULL, processed_at = now()
WHERE seq = ANY ($1::bigint[]);
