-- Lists the topics with due messages, with their number (counted up to limit) and the oldest due time, and those with dead
-- letters, with their number among the newest (limit of them). A topic may come twice. It jumps from topic to topic in the
-- index of what is due, so that the cost depends on topics and not on messages. The topic's name is read from the contents
-- of one of its messages.
IF OBJECT_ID(N'[dbo].[Outbox_Topics]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Topics] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Topics]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Key BIGINT = NULL, @Seq BIGINT, @Before BIGINT;
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Waiting BIGINT NOT NULL, Oldest DATETIME2(3) NULL);
    DECLARE @Dead TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Failed BIGINT NOT NULL);

    SELECT TOP (1) @Key = TopicKey, @Seq = Seq FROM [dbo].[Outbox_State] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE Status = 0 AND TopicKey >= CAST(-9223372036854775808 AS BIGINT) ORDER BY TopicKey, NextAttemptAt, Seq
    OPTION (MAXDOP 1);
    WHILE @Key IS NOT NULL
    BEGIN
        INSERT INTO @Found (Seq, Waiting, Oldest)
        SELECT @Seq, COUNT(*), MIN(d.NextAttemptAt)
        FROM (SELECT TOP (@Limit) NextAttemptAt FROM [dbo].[Outbox_State] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
              WHERE Status = 0 AND TopicKey = @Key AND NextAttemptAt <= @Now ORDER BY NextAttemptAt, Seq) AS d
        OPTION (MAXDOP 1);

        SET @Before = @Key;
        SET @Key = NULL;
        SELECT TOP (1) @Key = TopicKey, @Seq = Seq FROM [dbo].[Outbox_State] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE Status = 0 AND TopicKey > @Before ORDER BY TopicKey, NextAttemptAt, Seq
        OPTION (MAXDOP 1);
    END

    INSERT INTO @Dead (Seq, Failed)
    SELECT MAX(d.Seq), COUNT(*)
    FROM (SELECT TOP (@Limit) TopicKey, Seq FROM [dbo].[Outbox_State] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
          WHERE Status = 3 AND ProcessedAt > CAST('0001-01-01' AS DATETIME2(3)) ORDER BY ProcessedAt DESC, Seq DESC) AS d
    GROUP BY d.TopicKey
    OPTION (MAXDOP 1);

    SELECT o.Topic, f.Waiting, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), f.Oldest), DATEDIFF_BIG(MILLISECOND, f.Oldest, @Now), CAST(0 AS BIGINT)
    FROM @Found AS f INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = f.Seq
    WHERE f.Waiting > 0
    UNION ALL
    SELECT o.Topic, CAST(0 AS BIGINT), DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), @Now), CAST(0 AS BIGINT), d.Failed
    FROM @Dead AS d INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = d.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
