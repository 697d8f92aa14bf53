-- Removes a consumer group with its dead letters, which then holds up no purge; answers of how many topics.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Forget]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Forget] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Forget]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;

    DECLARE @Topics INT;

    BEGIN TRY
        BEGIN TRANSACTION;

        DELETE FROM [dbo].[Outbox_Log_Dead] WITH (ROWLOCK) WHERE GroupName = JSON_VALUE(@Arg, '$.group');

        DELETE FROM [dbo].[Outbox_Log_Group] WITH (ROWLOCK) WHERE GroupName = JSON_VALUE(@Arg, '$.group');
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
