-- Makes up to limit failed messages ready again with all their attempts; returns how many, until when they had failed, and
-- when the last of them had. Both are arguments of the next call, unless the messages have ids, so that a series of calls does
-- not requeue a message that has failed again since, not even in the same millisecond, and does not look at the same ones
-- again. Both filters are optional: a topic, and a list of message ids. Stages stay, unless
-- start_over is set. A message that blocked its stream no longer does; one that was skipped had left its queue, and arrives
-- again.
IF OBJECT_ID(N'[dbo].[Outbox_Requeue]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Requeue] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Requeue]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @TopicKey BIGINT = CAST(JSON_VALUE(@Arg, '$.topic_key') AS BIGINT);
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @UntilMs BIGINT = CAST(JSON_VALUE(@Arg, '$.until') AS BIGINT);
    DECLARE @First BIT = CASE WHEN @UntilMs IS NULL THEN 1 ELSE 0 END;
    IF @First = 1 SET @UntilMs = DATEDIFF_BIG(MILLISECOND, @Epoch, @Now);
    DECLARE @Until DATETIME2(3) = DATEADD(MILLISECOND, @UntilMs % 1000, DATEADD(SECOND, @UntilMs / 1000 % 86400, DATEADD(DAY, @UntilMs / 86400000, @Epoch)));
    DECLARE @AfterMs BIGINT = CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT);
    -- To the second, which no server rounds up: messages found twice are ready by then, or not wanted.
    DECLARE @After DATETIME2(3) = COALESCE(DATEADD(SECOND, @AfterMs / 1000 % 86400, DATEADD(DAY, @AfterMs / 86400000, @Epoch)), CAST('0001-01-01' AS DATETIME2(3)));
    DECLARE @StartOver BIT = CASE JSON_VALUE(@Arg, '$.start_over') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Ids TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY, ProcessedAt DATETIME2(3) NOT NULL);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NULL, TopicKey BIGINT NOT NULL);
    DECLARE @Wanted TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Locked TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Count INT, @Streams NVARCHAR(MAX);
    DECLARE @ByIds BIT = CASE WHEN JSON_QUERY(@Arg, '$.ids') IS NULL THEN 0 ELSE 1 END;

    IF @ByIds = 1
    BEGIN
        INSERT INTO @Ids (MessageId)
        SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Arg, '$.ids') AS i;

        INSERT INTO @Rows (Seq)
        SELECT o.Seq
        FROM @Ids AS i INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON o.MessageId = i.MessageId
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Found (Seq, ProcessedAt)
        SELECT TOP (@Limit) s.Seq, s.ProcessedAt
        FROM @Rows AS r INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = r.Seq
        WHERE s.Status = 3 AND s.ProcessedAt <= @Until AND (@TopicKey IS NULL OR s.TopicKey = @TopicKey)
          AND (@First = 1 OR s.ProcessedAt < @Until OR s.NextAttemptAt < s.ProcessedAt)
        ORDER BY s.ProcessedAt, s.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    END
    ELSE
        INSERT INTO @Found (Seq, ProcessedAt)
        SELECT TOP (@Limit) s.Seq, s.ProcessedAt
        FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE s.Status = 3 AND s.ProcessedAt >= @After AND s.ProcessedAt <= @Until AND (@TopicKey IS NULL OR s.TopicKey = @TopicKey)
          AND (@First = 1 OR s.ProcessedAt < @Until OR s.NextAttemptAt < s.ProcessedAt)
        ORDER BY s.ProcessedAt, s.Seq
        OPTION (MAXDOP 1);

    BEGIN TRY
        BEGIN TRANSACTION;

        -- A message may have been requeued, and have failed again, since it was found.
        INSERT INTO @Held (Seq, StreamId, TopicKey)
        SELECT s.Seq, s.StreamId, s.TopicKey
        FROM @Found AS f INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = f.Seq
        WHERE s.Status = 3 AND s.ProcessedAt <= @Until
          AND (@First = 1 OR s.ProcessedAt < @Until OR s.NextAttemptAt < s.ProcessedAt)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        UPDATE s
        SET Status = CASE WHEN s.StreamId IS NULL THEN 0 ELSE 5 END, Flags = s.Flags & 251, RetryCount = 0, NextAttemptAt = @Now,
            ProcessedAt = NULL, WorkerId = NULL, Stages = CASE @StartOver WHEN 1 THEN NULL ELSE s.Stages END
        FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = h.Seq
        WHERE s.Status = 3
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Count = @@ROWCOUNT;

        INSERT INTO @Wanted (StreamId) SELECT DISTINCT h.StreamId FROM @Held AS h WHERE h.StreamId IS NOT NULL;
        IF @@ROWCOUNT > 0
        BEGIN
            INSERT INTO @Locked (StreamId)
            SELECT t.StreamId
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox_Stream] AS t WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON t.StreamId = w.StreamId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            INSERT INTO [dbo].[Outbox_Arrival] (Seq, StreamId, TopicKey)
            SELECT h.Seq, h.StreamId, h.TopicKey
            FROM @Held AS h
            WHERE h.StreamId IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE q.StreamId = h.StreamId AND q.Seq = h.Seq)
              -- Outbox_End may have left the arrival to a router.
              AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Arrival] AS a WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE a.Seq = h.Seq)
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            SELECT @Streams = N'[' + STRING_AGG(CAST(StreamId AS NVARCHAR(MAX)), N',') + N']' FROM @Wanted;
            EXEC [dbo].[Outbox_Stream_Free] @Streams = @Streams;
        END

        SELECT CAST(@Count AS BIGINT), @UntilMs, COALESCE(MAX(DATEDIFF_BIG(MILLISECOND, @Epoch, f.ProcessedAt)), 0) FROM @Found AS f;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
