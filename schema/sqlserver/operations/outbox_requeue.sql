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
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @UntilMs BIGINT = CAST(JSON_VALUE(@Arg, '$.until') AS BIGINT);
    DECLARE @First BIT = CASE WHEN @UntilMs IS NULL THEN 1 ELSE 0 END;
    IF @First = 1 SET @UntilMs = DATEDIFF_BIG(MILLISECOND, @Epoch, @Now);
    DECLARE @Until DATETIME2(3) = DATEADD(MILLISECOND, @UntilMs % 86400000, DATEADD(DAY, @UntilMs / 86400000, @Epoch));
    DECLARE @Ids TABLE (MessageId UNIQUEIDENTIFIER NOT NULL);
    DECLARE @ByIds BIT = CASE WHEN JSON_QUERY(@Arg, '$.ids') IS NULL THEN 0 ELSE 1 END;

    INSERT INTO @Ids (MessageId)
    SELECT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Arg, '$.ids') AS i;

    UPDATE [dbo].[Outbox] WITH (ROWLOCK, READPAST)
    SET Status = 0, RetryCount = 0, NextAttemptAt = @Now, ProcessedAt = NULL, ProcessedBy = NULL
    WHERE Status = 3 AND Seq IN (
        SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK)
        WHERE Status >= 2 AND Status = 3
          AND (@First = 1 OR ProcessedAt < @Until OR (ProcessedAt = @Until AND NextAttemptAt < ProcessedAt))
          AND (@Topic IS NULL OR Topic = @Topic)
          AND (@ByIds = 0 OR MessageId IN (SELECT MessageId FROM @Ids))
        ORDER BY ProcessedAt, Seq)
    OPTION (RECOMPILE, MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT), @UntilMs;
END
GO
