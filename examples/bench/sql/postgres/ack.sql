-- Bare draining: ends claimed messages by key.
UPDATE {{.Outbox}} SET status = 2, owner_token = NULL, locked_until = NULL, processed_at = now()
WHERE seq = ANY ($1::bigint[]);
