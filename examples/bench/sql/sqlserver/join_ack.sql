-- Bare draining of steps: ends claimed messages by key, their steps, and the joins that have none left.
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DECLARE @Acked TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
DECLARE @Counted TABLE (JoinId UNIQUEIDENTIFIER NOT NULL);

UPDATE {{.State}} SET Status = 2, OwnerToken = NULL, ProcessedAt = SYSUTCDATETIME()
WHERE Seq IN (SELECT CAST(value AS BIGINT) FROM OPENJSON(@p1));

INSERT INTO @Acked (MessageId)
SELECT o.MessageId FROM OPENJSON(@p1) AS s INNER JOIN {{.Outbox}} AS o ON o.Seq = CAST(s.value AS BIGINT);

UPDATE {{.JoinMember}} SET Status = 1
OUTPUT inserted.JoinId INTO @Counted (JoinId)
WHERE OutboxMessageId IN (SELECT MessageId FROM @Acked)
OPTION (LOOP JOIN, MAXDOP 1);

UPDATE j
SET CompletedSteps = j.CompletedSteps + d.Done, LastUpdatedUtc = SYSUTCDATETIME(),
    Status = CASE WHEN j.CompletedSteps + d.Done >= j.ExpectedSteps THEN 1 ELSE 0 END
FROM {{.Join}} AS j
INNER JOIN (SELECT c.JoinId, COUNT(*) AS Done FROM @Counted AS c GROUP BY c.JoinId) AS d ON d.JoinId = j.JoinId;
COMMIT TRANSACTION;
