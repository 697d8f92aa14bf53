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
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Status TINYINT = CAST(JSON_VALUE(@Arg, '$.status') AS TINYINT);
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));

    DELETE FROM [dbo].[Outbox] WITH (ROWLOCK, READPAST)
    WHERE Status >= 2 AND Seq IN (
        SELECT TOP (@Limit) o.Seq FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK)
        WHERE o.Status >= 2 AND o.Status = @Status AND o.ProcessedAt <= @Before
          AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = o.MessageId)
        ORDER BY o.ProcessedAt)
    OPTION (LOOP JOIN, MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT);
END
GO
