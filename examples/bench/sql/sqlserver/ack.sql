-- Bare draining: ends claimed messages by key.
UPDATE {{.State}} SET Status = 2, OwnerToken = NULL, ProcessedAt = SYSUTCDATETIME()
WHERE Seq IN (SELECT CAST(value AS BIGINT) FROM OPENJSON(@p1));
