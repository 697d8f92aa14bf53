-- Deletes up to limit messages that ended (2 done, 3 failed) longer ago than the given age; answers how many.
-- Those that are still needed (Outbox_Kept) are spared. Small batches that skip locked rows: nothing waits for it.
IF OBJECT_ID(N'[dbo].[Outbox_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Status TINYINT = CAST(JSON_VALUE(@Arg, '$.status') AS TINYINT);
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    -- Found without update locks, which would stay on all that is kept: thousands of them become one lock of the table.
    INSERT INTO @Found (Seq)
    SELECT TOP (@Limit) o.Seq
    FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE o.Status >= 2 AND o.Status = @Status AND o.ProcessedAt <= @Before
      AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = o.MessageId)
    ORDER BY o.ProcessedAt
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- What was found may have been requeued or become a step of a join meanwhile.
    DELETE o
    FROM @Found AS f INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, FORCESEEK) ON o.Seq = f.Seq
    WHERE o.Status = @Status AND o.ProcessedAt <= @Before
      AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = o.MessageId)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT);
END
GO
