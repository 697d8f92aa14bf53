-- Bare draining: ends claimed messages by key.
UPDATE {{.State}}
SET status = 2, owner_token = NULL, processed_at = CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)
WHERE seq IN (SELECT value FROM json_each(?1));
