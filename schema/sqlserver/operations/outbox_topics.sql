-- The topics that have due messages waiting, with their number (counted up to limit) and the oldest due time.
-- Jumps from topic to topic in the index, so that it costs by topics and not by messages.
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
    DECLARE @Topic NVARCHAR(255) = NULL;
    DECLARE @Found TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, Waiting BIGINT NOT NULL, Oldest DATETIME2(3) NULL);

    SELECT @Topic = MIN(Topic) FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE Status = 0;
    WHILE @Topic IS NOT NULL
    BEGIN
        INSERT INTO @Found (Topic, Waiting, Oldest)
        SELECT @Topic, COUNT(*), MIN(d.NextAttemptAt)
        FROM (SELECT TOP (@Limit) NextAttemptAt FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST)
              WHERE Status = 0 AND Topic = @Topic AND NextAttemptAt <= @Now ORDER BY NextAttemptAt, Seq) AS d;

        SELECT @Topic = MIN(Topic) FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE Status = 0 AND Topic > @Topic;
    END

    SELECT f.Topic, f.Waiting, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), f.Oldest), DATEDIFF_BIG(MILLISECOND, f.Oldest, @Now)
    FROM @Found AS f WHERE f.Waiting > 0;
END
GO
