-- Bare draining: @p2 messages of a topic, with payload.
UPDATE {{.Outbox}} WITH (ROWLOCK, READPAST)
SET Status = 1, OwnerToken = '00000000-0000-4000-8000-000000000001', LockedUntil = DATEADD(SECOND, 30, SYSUTCDATETIME())
OUTPUT inserted.Seq, inserted.Uuid, inserted.Payload
WHERE Status = 0 AND Seq IN (
    SELECT TOP (@p2) Seq FROM {{.Outbox}} WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE Status = 0 AND Topic = @p1 AND NextAttemptAt <= SYSUTCDATETIME()
    ORDER BY NextAttemptAt, Seq);
