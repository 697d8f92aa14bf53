-- Makes up to limit failed messages ready again with a fresh retry budget; answers how many, and until when they had
-- failed: the argument of the next call, so that many calls do not take again what has failed again meanwhile, not even
-- in the same millisecond. Both filters are optional: a topic, and a list of message ids.
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
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @UntilMs BIGINT = CAST(JSON_VALUE(@Arg, '$.until') AS BIGINT);
    DECLARE @First BIT = CASE WHEN @UntilMs IS NULL THEN 1 ELSE 0 END;
    IF @First = 1 SET @UntilMs = DATEDIFF_BIG(MILLISECOND, @Epoch, @Now);
    DECLARE @Until DATETIME2(3) = DATEADD(MILLISECOND, @UntilMs % 86400000, DATEADD(DAY, @UntilMs / 86400000, @Epoch));
    DECLARE @Ids TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @ByIds BIT = CASE WHEN JSON_QUERY(@Arg, '$.ids') IS NULL THEN 0 ELSE 1 END;

    INSERT INTO @Ids (MessageId)
    SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Arg, '$.ids') AS i;

    IF @ByIds = 1
        INSERT INTO @Found (Seq)
        SELECT TOP (@Limit) o.Seq
        FROM @Ids AS i INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON o.MessageId = i.MessageId
        WHERE o.Status = 3 AND (@Topic IS NULL OR o.Topic = @Topic)
          AND (@First = 1 OR o.ProcessedAt < @Until OR (o.ProcessedAt = @Until AND o.NextAttemptAt < o.ProcessedAt))
        ORDER BY o.ProcessedAt, o.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    ELSE
        INSERT INTO @Found (Seq)
        SELECT TOP (@Limit) o.Seq
        FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE o.Status >= 2 AND o.Status = 3 AND (@Topic IS NULL OR o.Topic = @Topic)
          AND (@First = 1 OR o.ProcessedAt < @Until OR (o.ProcessedAt = @Until AND o.NextAttemptAt < o.ProcessedAt))
        ORDER BY o.ProcessedAt, o.Seq
        OPTION (RECOMPILE, MAXDOP 1);

    -- What was found may have been requeued, and have failed again, meanwhile.
    UPDATE o
    SET Status = 0, RetryCount = 0, NextAttemptAt = @Now, ProcessedAt = NULL, ProcessedBy = NULL
    FROM @Found AS f INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, FORCESEEK) ON o.Seq = f.Seq
    WHERE o.Status = 3
      AND (@First = 1 OR o.ProcessedAt < @Until OR (o.ProcessedAt = @Until AND o.NextAttemptAt < o.ProcessedAt))
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT), @UntilMs;
END
GO
