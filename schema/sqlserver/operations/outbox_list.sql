-- Walks messages of any state from the newest to the oldest, at most scan of them before a mark, and returns those that match,
-- without payloads. So a search costs the same in each call, however few match. The last row, without a message id, says
-- where the walk ended (Seq), how many it passed (in RetryCount), and when the last of them was published (mark). Messages
-- that wait for a position in the log are read before those that have one, because messages move in that direction.
IF OBJECT_ID(N'[dbo].[Outbox_List]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_List] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_List]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Scan INT = CAST(JSON_VALUE(@Arg, '$.scan') AS INT);
    DECLARE @Cut INT = CAST(JSON_VALUE(@Arg, '$.cut') AS INT);
    DECLARE @Before BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.mark_seq') AS BIGINT), 9223372036854775807);
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Uuid NVARCHAR(255) = JSON_VALUE(@Arg, '$.uuid');
    DECLARE @Correlation NVARCHAR(255) = JSON_VALUE(@Arg, '$.correlation_id');
    DECLARE @StreamKey NVARCHAR(255) = JSON_VALUE(@Arg, '$.stream_key');
    DECLARE @Error NVARCHAR(4000) = JSON_VALUE(@Arg, '$.error');
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @FromMs BIGINT = CAST(JSON_VALUE(@Arg, '$.from_us') AS BIGINT) / 1000;
    DECLARE @ToMs BIGINT = CAST(JSON_VALUE(@Arg, '$.to_us') AS BIGINT) / 1000;
    DECLARE @From DATETIME2(3) = DATEADD(MILLISECOND, @FromMs % 1000, DATEADD(SECOND, @FromMs / 1000 % 86400, DATEADD(DAY, @FromMs / 86400000, @Epoch)));
    DECLARE @To DATETIME2(3) = DATEADD(MILLISECOND, @ToMs % 1000, DATEADD(SECOND, @ToMs / 1000 % 86400, DATEADD(DAY, @ToMs / 86400000, @Epoch)));
    DECLARE @AnyState BIT = CASE WHEN JSON_QUERY(@Arg, '$.states') IS NULL THEN 1 ELSE 0 END;
    DECLARE @States TABLE (Status INT NOT NULL PRIMARY KEY);
    DECLARE @Walked TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, CreatedAt DATETIME2(3) NOT NULL);
    DECLARE @Pending TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Errors TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Error NVARCHAR(MAX) COLLATE Latin1_General_BIN2 NULL);
    DECLARE @LastSeq BIGINT, @LastUs BIGINT, @Passed INT;

    INSERT INTO @States (Status) SELECT DISTINCT CAST(i.value AS INT) FROM OPENJSON(@Arg, '$.states') AS i;

    INSERT INTO @Walked (Seq, MessageId, CreatedAt)
    SELECT TOP (@Scan) o.Seq, o.MessageId, o.CreatedAt
    FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE o.Seq < @Before
    ORDER BY o.Seq DESC
    OPTION (MAXDOP 1);
    SET @Passed = @@ROWCOUNT;
    SELECT TOP (1) @LastSeq = w.Seq, @LastUs = DATEDIFF_BIG(MILLISECOND, @Epoch, w.CreatedAt) * 1000 FROM @Walked AS w ORDER BY w.Seq;

    INSERT INTO @Pending (Seq)
    SELECT w.Seq
    FROM @Walked AS w INNER JOIN [dbo].[Outbox_Log_Pending] AS g WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON g.Seq = w.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Errors (Seq, Error)
    SELECT w.Seq, (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WITH (FORCESEEK)
                   WHERE a.Seq = w.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC)
    FROM @Walked AS w
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, s.NextAttemptAt),
           DATEDIFF_BIG(MILLISECOND, @Epoch, s.ProcessedAt), CAST(CASE s.Status WHEN 5 THEN 0 ELSE COALESCE(s.Status, 4) END AS INT),
           COALESCE(s.RetryCount, 0), COALESCE(s.Size, 0), n.Name, LEFT(e.Error, @Cut), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT)
    FROM @Walked AS w
    INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = w.Seq
    LEFT JOIN [dbo].[Outbox_State] AS s WITH (FORCESEEK) ON s.Seq = w.Seq
    INNER JOIN @Errors AS e ON e.Seq = w.Seq
    LEFT JOIN [dbo].[Outbox_Worker] AS n WITH (FORCESEEK) ON n.WorkerId = s.WorkerId
    WHERE (@Topic IS NULL OR o.Topic = @Topic)
      AND (@Uuid IS NULL OR CAST(o.Uuid AS VARBINARY(510)) = CAST(@Uuid AS VARBINARY(510)))
      AND (@Correlation IS NULL OR CAST(o.CorrelationId AS VARBINARY(510)) = CAST(@Correlation AS VARBINARY(510)))
      AND (@StreamKey IS NULL OR o.StreamKey = @StreamKey)
      AND (@From IS NULL OR o.CreatedAt >= @From) AND (@To IS NULL OR o.CreatedAt <= @To)
      AND (@AnyState = 1 OR CASE s.Status WHEN 5 THEN 0 ELSE COALESCE(s.Status, 4) END IN (SELECT t.Status FROM @States AS t))
      AND (@Error IS NULL OR CHARINDEX(@Error, e.Error) > 0)
      AND (s.Seq IS NOT NULL OR w.Seq IN (SELECT p.Seq FROM @Pending AS p)
           OR EXISTS (SELECT 1 FROM [dbo].[Outbox_Log] AS g WITH (FORCESEEK) WHERE g.MessageId = w.MessageId))
    UNION ALL
    SELECT COALESCE(@LastSeq, 0), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, @Passed, NULL, NULL, NULL, COALESCE(@LastUs, 0), 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
