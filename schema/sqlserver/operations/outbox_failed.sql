-- The most recent dead letters, of one topic or of all. They are listed from the index of dead letters alone, and then read
-- by Seq, because a write locks the row first and its index entry after that; contents last and alone, as in Outbox_Get.
IF OBJECT_ID(N'[dbo].[Outbox_Failed]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Failed] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Failed]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @TopicKey BIGINT = CAST(JSON_VALUE(@Arg, '$.topic_key') AS BIGINT);
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @States TABLE (
        Seq BIGINT NOT NULL PRIMARY KEY, Status INT NOT NULL, RetryCount INT NOT NULL, NextAttemptAt DATETIME2(3) NOT NULL,
        OwnerToken UNIQUEIDENTIFIER NULL, ProcessedAt DATETIME2(3) NULL, Worker NVARCHAR(100) NULL, Stages INT NULL);
    DECLARE @Errors TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Error NVARCHAR(MAX) NULL);

    INSERT INTO @Rows (Seq)
    SELECT TOP (@Limit) s.Seq
    FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK)
    WHERE s.Status = 3 AND s.ProcessedAt > CAST('0001-01-01' AS DATETIME2(3)) AND (@TopicKey IS NULL OR s.TopicKey = @TopicKey)
    ORDER BY s.ProcessedAt DESC, s.Seq DESC
    OPTION (MAXDOP 1);

    INSERT INTO @States (Seq, Status, RetryCount, NextAttemptAt, OwnerToken, ProcessedAt, Worker, Stages)
    SELECT s.Seq, s.Status, s.RetryCount, s.NextAttemptAt, s.OwnerToken, s.ProcessedAt, w.Name, s.Stages
    FROM @Rows AS r
    INNER JOIN [dbo].[Outbox_State] AS s WITH (FORCESEEK) ON s.Seq = r.Seq
    LEFT JOIN [dbo].[Outbox_Worker] AS w WITH (FORCESEEK) ON w.WorkerId = s.WorkerId
    WHERE s.Status = 3
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Errors (Seq, Error)
    SELECT s.Seq, (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WITH (FORCESEEK)
                   WHERE a.Seq = s.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC)
    FROM @States AS s
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc),
           s.RetryCount, s.Status, DATEDIFF_BIG(MILLISECOND, @Epoch, s.NextAttemptAt),
           CAST(NULL AS BIGINT), CAST(s.OwnerToken AS CHAR(36)), e.Error, DATEDIFF_BIG(MILLISECOND, @Epoch, s.ProcessedAt), s.Worker, s.Stages
    FROM @States AS s
    INNER JOIN @Errors AS e ON e.Seq = s.Seq
    INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = s.Seq
    WHERE @Topic IS NULL OR o.Topic = @Topic
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
