-- Gives back what expired leases hold, about limit messages at a time, which counts an attempt; returns how many came back
-- and how many leases ended. Ended messages hold no lease and are never touched.
IF OBJECT_ID(N'[dbo].[Outbox_Reap]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Reap] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Reap]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Waits NVARCHAR(MAX) = JSON_QUERY(@Arg, '$.waits');
    DECLARE @Messages INT, @Leases INT;

    BEGIN TRY
        BEGIN TRANSACTION;

        EXEC [dbo].[Outbox_Give_Back] @Most = @Limit, @Waits = @Waits, @Messages = @Messages OUTPUT, @Leases = @Leases OUTPUT;

        SELECT CAST(@Messages AS BIGINT), CAST(@Leases AS BIGINT);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
