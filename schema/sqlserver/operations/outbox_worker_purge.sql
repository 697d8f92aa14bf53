-- Deletes up to limit workers that have not lived for longer than the given age; returns how many. Locked ones are skipped. What
-- they handled then names no worker.
IF OBJECT_ID(N'[dbo].[Outbox_Worker_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Worker_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Worker_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @OlderThanMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -CAST(@OlderThanMs % 86400000 AS INT), DATEADD(DAY, -CAST(@OlderThanMs / 86400000 AS INT), SYSUTCDATETIME()));
    DECLARE @Gone INT;
    DECLARE @Old TABLE (WorkerId INT NOT NULL PRIMARY KEY);

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Old (WorkerId)
        SELECT TOP (@Limit) w.WorkerId
        FROM [dbo].[Outbox_Worker] AS w WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE w.LivesUntil < @Before
        ORDER BY w.LivesUntil
        OPTION (MAXDOP 1);

        DELETE w
        FROM @Old AS o INNER JOIN [dbo].[Outbox_Worker] AS w WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON w.WorkerId = o.WorkerId
        WHERE w.LivesUntil < @Before
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Gone = @@ROWCOUNT;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH

    SELECT CAST(@Gone AS BIGINT);
END
GO
