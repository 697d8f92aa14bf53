-- Bare draining: @p2 messages of a topic, by its key, with payload.
DECLARE @Claimed TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
UPDATE {{.State}} WITH (ROWLOCK, READPAST)
SET Status = 1, OwnerToken = '00000000-0000-4000-8000-000000000001'
OUTPUT inserted.Seq INTO @Claimed (Seq)
WHERE Status = 0 AND Seq IN (
    SELECT TOP (@p2) Seq FROM {{.State}} WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE Status = 0 AND TopicKey = @p1 AND NextAttemptAt <= SYSUTCDATETIME()
    ORDER BY NextAttemptAt, Seq);
SELECT o.Seq, o.Uuid, o.Payload FROM @Claimed AS c INNER JOIN {{.Outbox}} AS o ON o.Seq = c.Seq;
