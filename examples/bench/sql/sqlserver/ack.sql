-- Bare draining: ends claimed messages by key.
UPDATE {{.Outbox}} SET Status = 2, OwnerToken = NULL, LockedUntil = NULL, ProcessedAt = SYSUTCDATETIME()
WHERE Seq IN (SELECT CAST(value AS BIGINT) FROM OPENJSON(@p1));
