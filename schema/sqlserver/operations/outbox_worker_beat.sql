-- The heartbeat of a worker: it lives for live_ms from now. With start, it has just started; with stop, it has ended. Returns
-- how many workers live, and how many of them have a lower number. Heartbeats that are not committed yet count, too.
IF OBJECT_ID(N'[dbo].[Outbox_Worker_Beat]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Worker_Beat] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Worker_Beat]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Worker NVARCHAR(100) = JSON_VALUE(@Arg, '$.worker');
    DECLARE @LiveMs INT = CAST(JSON_VALUE(@Arg, '$.live_ms') AS INT);
    DECLARE @Start BIT = CASE JSON_VALUE(@Arg, '$.start') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Stop BIT = CASE JSON_VALUE(@Arg, '$.stop') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @WorkerId INT;

    BEGIN TRY
        BEGIN TRANSACTION;

        EXEC [dbo].[Outbox_Worker_Number] @Worker = @Worker, @Number = @WorkerId OUTPUT;

        UPDATE w
        SET StartedAt = CASE @Start WHEN 1 THEN @Now ELSE w.StartedAt END,
            SeenAt = @Now,
            LivesUntil = CASE @Stop WHEN 1 THEN @Now ELSE DATEADD(MILLISECOND, @LiveMs, @Now) END,
            StoppedAt = CASE @Stop WHEN 1 THEN @Now END
        FROM [dbo].[Outbox_Worker] AS w WITH (ROWLOCK, FORCESEEK)
        WHERE w.WorkerId = @WorkerId
        OPTION (MAXDOP 1);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH

    SELECT COUNT_BIG(*), COUNT_BIG(CASE WHEN w.WorkerId < @WorkerId THEN 1 END)
    FROM [dbo].[Outbox_Worker] AS w WITH (NOLOCK, FORCESEEK)
    WHERE w.LivesUntil > @Now
    OPTION (MAXDOP 1);
END
GO
