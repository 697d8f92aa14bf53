-- Adds ended steps to the counters of joins, ends those that have a verdict, and makes sure that the messages that wait for
-- them become due. Returns the joins that have ended, once for each topic to wake. Runs in its caller's transaction; @Outer
-- is how many transactions were open outside that. Joins are locked in order of their ids. Ended joins no longer count. It
-- waits for no message after the joins, because holders of messages wait for joins. A locked message is noted in
-- Outbox_Wake, and the next claim makes it due; in a caller's transaction, which may have any isolation level and last any
-- time, every message is noted. An insert meets no lock.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Advance]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Advance] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Advance]
    @Arg NVARCHAR(MAX),
    @Outer INT
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Steps TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, Done INT NOT NULL, Dead INT NOT NULL);
    DECLARE @Ended TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Waiting TABLE (JoinId UNIQUEIDENTIFIER NOT NULL, Seq BIGINT NOT NULL, PRIMARY KEY (Seq, JoinId));
    DECLARE @Seqs TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Free TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Last BIGINT = 0; -- Seq begins at 1

    INSERT INTO @Steps (JoinId, Done, Dead)
    SELECT s.id, s.done, s.dead
    FROM OPENJSON(@Arg) WITH (id UNIQUEIDENTIFIER '$.id', done INT '$.done', dead INT '$.dead') AS s;

    UPDATE j
    SET CompletedSteps = j.CompletedSteps + s.Done, FailedSteps = j.FailedSteps + s.Dead, LastUpdatedUtc = @Now
    FROM @Steps AS s INNER JOIN [dbo].[OutboxJoin] AS j WITH (UPDLOCK, REPEATABLEREAD, ROWLOCK, FORCESEEK) ON j.JoinId = s.JoinId
    WHERE j.Status = 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE j
    SET Status = j.Verdict, LastUpdatedUtc = @Now
    OUTPUT inserted.JoinId INTO @Ended (JoinId)
    FROM @Steps AS s INNER JOIN [dbo].[OutboxJoin] AS j WITH (ROWLOCK, FORCESEEK) ON j.JoinId = s.JoinId
    WHERE j.Status = 0 AND j.Verdict <> 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    IF NOT EXISTS (SELECT 1 FROM @Ended) RETURN;

    INSERT INTO @Waiting (JoinId, Seq)
    SELECT DISTINCT e.JoinId, o.Seq
    FROM @Ended AS e
    INNER JOIN [dbo].[OutboxJoinWait] AS w WITH (READCOMMITTEDLOCK, FORCESEEK) ON w.JoinId = e.JoinId
    INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.MessageId = w.OutboxMessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- Thousands may wait for one join: in batches, because thousands of locks of one statement escalate.
    WHILE 1 = 1
    BEGIN
        DELETE FROM @Seqs;
        INSERT INTO @Seqs (Seq) SELECT DISTINCT TOP (1000) Seq FROM @Waiting WHERE Seq > @Last ORDER BY Seq;
        IF @@ROWCOUNT = 0 BREAK;
        SELECT @Last = MAX(Seq) FROM @Seqs;

        IF @Outer = 0
        BEGIN
            DELETE FROM @Free;
            INSERT INTO @Free (Seq)
            SELECT s.Seq
            FROM @Seqs AS w INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = w.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            UPDATE s
            SET NextAttemptAt = @Now
            FROM @Free AS f INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = f.Seq
            WHERE s.Status = 0
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        END

        INSERT INTO [dbo].[Outbox_Wake] (Seq)
        SELECT w.Seq FROM @Seqs AS w WHERE NOT EXISTS (SELECT 1 FROM @Free AS f WHERE f.Seq = w.Seq);
    END

    SELECT DISTINCT CAST(0 AS BIGINT), CAST(j.JoinId AS CHAR(36)), o.Topic, CAST(j.Status AS INT), j.ExpectedSteps, j.CompletedSteps, j.FailedSteps
    FROM @Ended AS e
    INNER JOIN [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, FORCESEEK) ON j.JoinId = e.JoinId
    LEFT JOIN @Waiting AS w ON w.JoinId = j.JoinId
    LEFT JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = w.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
