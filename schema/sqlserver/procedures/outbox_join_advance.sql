-- Adds ended steps to the counters of joins, ends those whose verdict has fallen, and makes due the messages that wait for
-- them. Answers with the joins that have ended, once for each topic of theirs that was woken.
-- Runs in the transaction of whoever calls it. Joins are locked in order of their ids, waiting messages last. Ended joins
-- count no more (JOIN-042).
IF OBJECT_ID(N'[dbo].[Outbox_Join_Advance]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Advance] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Advance]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Steps TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, Done INT NOT NULL, Dead INT NOT NULL);
    DECLARE @Ended TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Waiting TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    INSERT INTO @Steps (JoinId, Done, Dead)
    SELECT s.id, s.done, s.dead
    FROM OPENJSON(@Arg) WITH (id UNIQUEIDENTIFIER '$.id', done INT '$.done', dead INT '$.dead') AS s;

    UPDATE j
    SET CompletedSteps = j.CompletedSteps + s.Done, FailedSteps = j.FailedSteps + s.Dead, LastUpdatedUtc = @Now
    FROM @Steps AS s INNER JOIN [dbo].[OutboxJoin] AS j WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON j.JoinId = s.JoinId
    WHERE j.Status = 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE j
    SET Status = j.Verdict, LastUpdatedUtc = @Now
    OUTPUT inserted.JoinId INTO @Ended (JoinId)
    FROM @Steps AS s INNER JOIN [dbo].[OutboxJoin] AS j WITH (ROWLOCK, FORCESEEK) ON j.JoinId = s.JoinId
    WHERE j.Status = 0 AND j.Verdict <> 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    IF NOT EXISTS (SELECT 1 FROM @Ended) RETURN;

    INSERT INTO @Waiting (Seq)
    SELECT DISTINCT o.Seq
    FROM @Ended AS e
    INNER JOIN [dbo].[OutboxJoinWait] AS w WITH (FORCESEEK) ON w.JoinId = e.JoinId
    INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = w.OutboxMessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE o
    SET NextAttemptAt = @Now
    FROM @Waiting AS w INNER JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON o.Seq = w.Seq
    WHERE o.Status = 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT DISTINCT CAST(0 AS BIGINT), CAST(j.JoinId AS CHAR(36)), o.Topic, CAST(j.Status AS INT), j.ExpectedSteps, j.CompletedSteps, j.FailedSteps
    FROM @Ended AS e
    INNER JOIN [dbo].[OutboxJoin] AS j WITH (FORCESEEK) ON j.JoinId = e.JoinId
    LEFT JOIN [dbo].[OutboxJoinWait] AS w WITH (FORCESEEK) ON w.JoinId = j.JoinId
    LEFT JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = w.OutboxMessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
