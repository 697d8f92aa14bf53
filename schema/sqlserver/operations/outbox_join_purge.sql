-- Deletes joins that ended longer ago than the given age, first their steps, up to limit rows; answers with the number of
-- rows and of joins among them. Spares those that a message still waits for. Small batches that skip locked rows.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Purge]
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
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));
    DECLARE @Steps INT, @Joins INT;
    DECLARE @Old TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Join_Purge;

        INSERT INTO @Old (JoinId)
        SELECT TOP (@Limit) j.JoinId FROM [dbo].[OutboxJoin] AS j WITH (UPDLOCK, READPAST, ROWLOCK)
        WHERE j.Status <> 0 AND j.CreatedUtc < @Before AND j.LastUpdatedUtc < @Before
          AND NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoinWait] AS w INNER JOIN [dbo].[Outbox] AS o ON o.MessageId = w.OutboxMessageId
                          WHERE w.JoinId = j.JoinId AND o.Status <> 2)
        ORDER BY j.CreatedUtc;

        DELETE TOP (@Limit) FROM [dbo].[OutboxJoinMember] WITH (ROWLOCK) WHERE JoinId IN (SELECT JoinId FROM @Old);
        SET @Steps = @@ROWCOUNT;

        DELETE FROM [dbo].[OutboxJoin] WITH (ROWLOCK)
        WHERE JoinId IN (SELECT o.JoinId FROM @Old AS o
                         WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoinMember] AS m WHERE m.JoinId = o.JoinId));
        SET @Joins = @@ROWCOUNT;

        DELETE FROM [dbo].[OutboxJoinSize] WITH (ROWLOCK)
        WHERE JoinId IN (SELECT o.JoinId FROM @Old AS o
                         WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoin] AS j WHERE j.JoinId = o.JoinId));

        SELECT CAST(@Steps + @Joins AS BIGINT), CAST(@Joins AS BIGINT);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Join_Purge;
        THROW;
    END CATCH
END
GO
