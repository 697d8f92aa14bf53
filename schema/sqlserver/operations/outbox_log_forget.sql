-- Removes a consumer group with the dead letters that are left, so that it no longer holds up purging; returns from how many
-- topics. Most dead letters were discarded in batches before.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Forget]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Forget] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Forget]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topics INT;

    BEGIN TRY
        BEGIN TRANSACTION;

        DELETE d FROM [dbo].[Outbox_Log_Dead] AS d WITH (ROWLOCK, FORCESEEK) WHERE GroupName = @Group;

        DELETE g FROM [dbo].[Outbox_Log_Group] AS g WITH (ROWLOCK, FORCESEEK) WHERE GroupName = @Group;
        SET @Topics = @@ROWCOUNT;

        SELECT CAST(@Topics AS BIGINT);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
