-- Walks the dead letters in the order in which they failed, at most scan of them after a mark, and returns those that match, without
-- payloads. So a search costs the same in each call, however few match. The last row, without a message id, says where the
-- walk ended, how many it passed (in RetryCount), and until when they had failed, which is an argument of the next call, so
-- that a walk ends although messages go on failing; ProcessedAt is that in microseconds. The walk reads the index of
-- dead letters alone, and rows are then read by Seq, because a write locks the row first and its index entry after that.
IF OBJECT_ID(N'[dbo].[Outbox_Dead_Scan]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Dead_Scan] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Dead_Scan]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Scan INT = CAST(JSON_VALUE(@Arg, '$.scan') AS INT);
    DECLARE @Cut INT = CAST(JSON_VALUE(@Arg, '$.cut') AS INT);
    DECLARE @Newest BIT = CASE JSON_VALUE(@Arg, '$.newest') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @TopicKey BIGINT = CAST(JSON_VALUE(@Arg, '$.topic_key') AS BIGINT);
    DECLARE @Uuid NVARCHAR(255) = JSON_VALUE(@Arg, '$.uuid');
    DECLARE @Correlation NVARCHAR(255) = JSON_VALUE(@Arg, '$.correlation_id');
    DECLARE @StreamKey NVARCHAR(255) = JSON_VALUE(@Arg, '$.stream_key');
    DECLARE @Error NVARCHAR(4000) = JSON_VALUE(@Arg, '$.error');
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @UntilMs BIGINT = DATEDIFF_BIG(MILLISECOND, @Epoch, SYSUTCDATETIME());
    DECLARE @GivenMs BIGINT = CAST(JSON_VALUE(@Arg, '$.until') AS BIGINT);
    DECLARE @ToMs BIGINT = CAST(JSON_VALUE(@Arg, '$.to_us') AS BIGINT) / 1000;
    DECLARE @FromMs BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.from_us') AS BIGINT) / 1000, 0);
    DECLARE @MarkMs BIGINT = CAST(JSON_VALUE(@Arg, '$.mark') AS BIGINT);
    DECLARE @MarkSeq BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.mark_seq') AS BIGINT), CASE @Newest WHEN 1 THEN 9223372036854775807 ELSE 0 END);
    IF @GivenMs < @UntilMs SET @UntilMs = @GivenMs;
    IF @ToMs < @UntilMs SET @UntilMs = @ToMs;
    DECLARE @LowMs BIGINT = CASE WHEN @Newest = 0 AND @MarkMs > @FromMs THEN @MarkMs ELSE @FromMs END;
    DECLARE @HighMs BIGINT = CASE WHEN @Newest = 1 AND @MarkMs < @UntilMs THEN @MarkMs ELSE @UntilMs END;
    -- Where a walk goes on must be exact, also on a compatible server that adds milliseconds as a floating-point number.
    DECLARE @Low DATETIME2(3) = DATEADD(MILLISECOND, @LowMs % 1000, DATEADD(SECOND, @LowMs / 1000 % 86400, DATEADD(DAY, @LowMs / 86400000, @Epoch)));
    DECLARE @High DATETIME2(3) = DATEADD(MILLISECOND, @HighMs % 1000, DATEADD(SECOND, @HighMs / 1000 % 86400, DATEADD(DAY, @HighMs / 86400000, @Epoch)));
    DECLARE @Mark DATETIME2(3) = DATEADD(MILLISECOND, @MarkMs % 1000, DATEADD(SECOND, @MarkMs / 1000 % 86400, DATEADD(DAY, @MarkMs / 86400000, @Epoch)));
    DECLARE @Walked TABLE (Seq BIGINT NOT NULL PRIMARY KEY, ProcessedAt DATETIME2(3) NOT NULL, TopicKey BIGINT NOT NULL);
    DECLARE @Errors TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Error NVARCHAR(MAX) COLLATE Latin1_General_BIN2 NULL);
    DECLARE @LastSeq BIGINT = 0, @LastMs BIGINT = 0, @Passed INT;

    IF @Newest = 1
        INSERT INTO @Walked (Seq, ProcessedAt, TopicKey)
        SELECT TOP (@Scan) s.Seq, s.ProcessedAt, s.TopicKey
        FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE s.Status = 3 AND s.ProcessedAt >= @Low AND s.ProcessedAt <= @High
          AND (@Mark IS NULL OR s.ProcessedAt < @Mark OR s.Seq < @MarkSeq)
        ORDER BY s.ProcessedAt DESC, s.Seq DESC
        OPTION (MAXDOP 1);
    ELSE
        INSERT INTO @Walked (Seq, ProcessedAt, TopicKey)
        SELECT TOP (@Scan) s.Seq, s.ProcessedAt, s.TopicKey
        FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE s.Status = 3 AND s.ProcessedAt >= @Low AND s.ProcessedAt <= @High
          AND (@Mark IS NULL OR s.ProcessedAt > @Mark OR s.Seq > @MarkSeq)
        ORDER BY s.ProcessedAt, s.Seq
        OPTION (MAXDOP 1);
    SET @Passed = @@ROWCOUNT;

    IF @Newest = 1
        SELECT TOP (1) @LastSeq = w.Seq, @LastMs = DATEDIFF_BIG(MILLISECOND, @Epoch, w.ProcessedAt) FROM @Walked AS w ORDER BY w.ProcessedAt, w.Seq;
    ELSE
        SELECT TOP (1) @LastSeq = w.Seq, @LastMs = DATEDIFF_BIG(MILLISECOND, @Epoch, w.ProcessedAt) FROM @Walked AS w ORDER BY w.ProcessedAt DESC, w.Seq DESC;

    INSERT INTO @Errors (Seq, Error)
    SELECT w.Seq, (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WITH (FORCESEEK)
                   WHERE a.Seq = w.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC)
    FROM @Walked AS w
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, s.NextAttemptAt),
           DATEDIFF_BIG(MILLISECOND, @Epoch, s.ProcessedAt), CAST(s.Status AS INT), s.RetryCount, s.Size, n.Name, LEFT(e.Error, @Cut),
           DATEDIFF_BIG(MILLISECOND, @Epoch, s.ProcessedAt), @UntilMs
    FROM @Walked AS w
    INNER JOIN [dbo].[Outbox_State] AS s WITH (FORCESEEK) ON s.Seq = w.Seq
    INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = w.Seq
    INNER JOIN @Errors AS e ON e.Seq = w.Seq
    LEFT JOIN [dbo].[Outbox_Worker] AS n WITH (FORCESEEK) ON n.WorkerId = s.WorkerId
    WHERE s.Status = 3 AND (@TopicKey IS NULL OR w.TopicKey = @TopicKey)
      AND (@Topic IS NULL OR o.Topic = @Topic)
      AND (@Uuid IS NULL OR CAST(o.Uuid AS VARBINARY(510)) = CAST(@Uuid AS VARBINARY(510)))
      AND (@Correlation IS NULL OR CAST(o.CorrelationId AS VARBINARY(510)) = CAST(@Correlation AS VARBINARY(510)))
      AND (@StreamKey IS NULL OR o.StreamKey = @StreamKey)
      AND (@Error IS NULL OR CHARINDEX(@Error, e.Error) > 0)
    UNION ALL
    SELECT @LastSeq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, @UntilMs * 1000, NULL, @Passed, NULL, NULL, NULL, @LastMs, @UntilMs
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
