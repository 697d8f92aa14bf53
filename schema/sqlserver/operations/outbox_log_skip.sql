-- Moves a consumer group past the message of a topic that it has tried and not passed, and takes the lease from its reader,
-- which then goes on from there. Returns the message's position and attempts, or nothing if there is none.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Skip]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Skip] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Skip]
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

    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Skipped TABLE (Position BIGINT NOT NULL, Attempts INT NOT NULL);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Log_Skip;

        UPDATE g
        SET Position = g.Tried, OwnerToken = NULL, LockedUntil = NULL
        OUTPUT inserted.Tried, inserted.Attempts INTO @Skipped (Position, Attempts)
        FROM [dbo].[Outbox_Log_Group] AS g WITH (ROWLOCK, FORCESEEK)
        WHERE g.GroupName = @Group AND g.Topic = @Topic AND g.Tried > g.Position AND g.Attempts > 0;

        SELECT Position, Attempts FROM @Skipped;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Log_Skip;
        THROW;
    END CATCH
END
GO
