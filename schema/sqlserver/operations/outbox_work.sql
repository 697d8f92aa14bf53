-- What a worker does in each round, in one transaction and one round trip: it settles like Outbox_Settle, renews like
-- Outbox_Renew, if anything is to be renewed, and then claims like Outbox_Claim; each returns its own result. Claiming waits for
-- nobody, and much of what it takes is returned after the commit, so that the rows that settling has locked are soon free.
IF OBJECT_ID(N'[dbo].[Outbox_Work]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Work] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Work]
    @Settle NVARCHAR(MAX),
    @Renew NVARCHAR(MAX),
    @Claim NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET LOCK_TIMEOUT 100; -- what has to wait is settled by itself

    DECLARE @Taken NVARCHAR(MAX), @Bytes BIGINT, @GivenBack INT;

    BEGIN TRY
        BEGIN TRANSACTION;
        EXEC [dbo].[Outbox_Settle] @Arg = @Settle, @Own = 1;
        IF @Renew IS NOT NULL EXEC [dbo].[Outbox_Renew] @Arg = @Renew;
        EXEC [dbo].[Outbox_Take] @Arg = @Claim, @Taken = @Taken OUTPUT, @Bytes = @Bytes OUTPUT, @GivenBack = @GivenBack OUTPUT;
        IF @Bytes <= 65536 EXEC [dbo].[Outbox_Taken] @Taken = @Taken, @GivenBack = @GivenBack;
        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH

    SET LOCK_TIMEOUT -1; -- what was claimed is not lost for a wait
    IF @Bytes > 65536 EXEC [dbo].[Outbox_Taken] @Taken = @Taken, @GivenBack = @GivenBack;
END
GO
