-- Deletes up to limit entries that ended (2 done, 3 failed) and were last seen longer ago than the given age, with their
-- messages in the queue; answers how many. Those that are still needed (Outbox_Kept) are spared.
-- Small batches that skip locked entries. A message is not skipped, or one that is being claimed would seem to be gone; it is
-- looked at again when it is deleted, for it may have been revived meanwhile.
IF OBJECT_ID(N'[dbo].[Outbox_Entry_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Entry_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Entry_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0
    BEGIN
        SET XACT_ABORT ON;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END
    ELSE SET XACT_ABORT OFF;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Status TINYINT = CAST(JSON_VALUE(@Arg, '$.status') AS TINYINT);
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY, QueueSeq BIGINT NULL);
    DECLARE @Old TABLE (Seq BIGINT NOT NULL PRIMARY KEY, QueueId UNIQUEIDENTIFIER NULL, QueueSeq BIGINT NULL);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Entry_Purge;

        -- Found without update locks, which would stay on all that it passes over, such as done entries on the way to failed ones.
        INSERT INTO @Found (Seq, QueueSeq)
        SELECT TOP (@Limit) e.Seq, o.Seq
        FROM [dbo].[OutboxEntry] AS e WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        LEFT JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = e.QueueId
        WHERE e.LastSeenAt <= @Before
          AND COALESCE(o.Status, 2) = @Status AND COALESCE(o.ProcessedAt, @Before) <= @Before
          AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = o.MessageId)
        ORDER BY e.LastSeenAt
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Old (Seq, QueueId, QueueSeq)
        SELECT e.Seq, e.QueueId, f.QueueSeq
        FROM @Found AS f INNER JOIN [dbo].[OutboxEntry] AS e WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON e.Seq = f.Seq
        WHERE e.LastSeenAt <= @Before
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE o
        FROM @Old AS d INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, FORCESEEK) ON o.Seq = d.QueueSeq
        WHERE o.Status = @Status
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE e
        FROM @Old AS d INNER JOIN [dbo].[OutboxEntry] AS e WITH (ROWLOCK, FORCESEEK) ON e.Seq = d.Seq
        WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.MessageId = d.QueueId)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT CAST(@@ROWCOUNT AS BIGINT);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Entry_Purge;
        THROW;
    END CATCH
END
GO
