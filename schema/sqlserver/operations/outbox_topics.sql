-- Lists the topics with due messages, with their number (counted up to limit) and the oldest due time. It jumps from topic
-- to topic in the index, so that the cost depends on topics and not on messages. The topic's name is read from the contents
-- of its first message.
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

    SELECT TOP (1) @Key = TopicKey, @Seq = Seq FROM [dbo].[Outbox_State] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE Status = 0 AND TopicKey >= -9223372036854775808 ORDER BY TopicKey, NextAttemptAt, Seq
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

    SELECT o.Topic, f.Waiting, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), f.Oldest), DATEDIFF_BIG(MILLISECOND, f.Oldest, @Now)
    FROM @Found AS f INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = f.Seq
    WHERE f.Waiting > 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
