-- Lists blocked streams, of one topic or of all, with the message that blocks each, since when and why, and how many
-- messages wait behind it, counted up to counted.
IF OBJECT_ID(N'[dbo].[Outbox_Stream_List]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stream_List] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stream_List]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Counted INT = CAST(JSON_VALUE(@Arg, '$.counted') AS INT);
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @First BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.topic_key') AS BIGINT), -9223372036854775808);
    DECLARE @Last BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.topic_key') AS BIGINT), 9223372036854775807);
    DECLARE @Blocked TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Heads TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL, ProcessedAt DATETIME2(3) NULL);
    DECLARE @Errors TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Error NVARCHAR(MAX) NULL);

    INSERT INTO @Blocked (StreamId)
    SELECT TOP (@Limit) t.StreamId FROM [dbo].[Outbox_Stream] AS t WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE t.Status = 2 AND t.TopicKey >= @First AND t.TopicKey <= @Last
    ORDER BY t.TopicKey, t.StreamId
    OPTION (MAXDOP 1);

    INSERT INTO @Heads (Seq, StreamId, ProcessedAt)
    SELECT h.Seq, b.StreamId, h.ProcessedAt
    FROM @Blocked AS b
    CROSS APPLY (SELECT TOP (1) s.Seq, s.ProcessedAt
                 FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                 INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = q.Seq
                 WHERE q.StreamId = b.StreamId AND s.Status = 3 AND s.Flags & 4 = 0
                 ORDER BY q.Seq) AS h
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Errors (Seq, Error)
    SELECT h.Seq, (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WITH (FORCESEEK)
                   WHERE a.Seq = h.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC)
    FROM @Heads AS h
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT o.Topic, o.StreamKey, CAST(o.MessageId AS CHAR(36)), DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), h.ProcessedAt), e.Error,
           (SELECT CAST(COUNT(*) AS BIGINT) FROM (
                SELECT TOP (@Counted) q.Seq FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                WHERE q.StreamId = h.StreamId AND q.Seq <> h.Seq) AS c)
    FROM @Heads AS h
    INNER JOIN @Errors AS e ON e.Seq = h.Seq
    INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = h.Seq
    WHERE @Topic IS NULL OR o.Topic = @Topic
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
