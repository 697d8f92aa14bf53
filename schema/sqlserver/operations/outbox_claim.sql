-- Claims messages (Outbox_Take) and returns them: in the transaction if they fit into the buffers of a connection, so that
-- none is held if that fails, and otherwise after the commit, so that a client that has stopped reading holds no locks. READ
-- COMMITTED, because READPAST is not allowed at other levels, and a pooled connection may be left at one.
IF OBJECT_ID(N'[dbo].[Outbox_Claim]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Claim] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Claim]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Taken NVARCHAR(MAX), @Bytes BIGINT, @GivenBack INT;

    BEGIN TRY
        BEGIN TRANSACTION;
        EXEC [dbo].[Outbox_Take] @Arg = @Arg, @Taken = @Taken OUTPUT, @Bytes = @Bytes OUTPUT, @GivenBack = @GivenBack OUTPUT;
        IF @Bytes <= 65536 EXEC [dbo].[Outbox_Taken] @Taken = @Taken, @GivenBack = @GivenBack;
        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH

    IF @Bytes > 65536 EXEC [dbo].[Outbox_Taken] @Taken = @Taken, @GivenBack = @GivenBack;
END
GO
