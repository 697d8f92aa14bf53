-- Claims messages (Outbox_Take) and returns them. READ COMMITTED, because READPAST is not allowed at other levels, and a pooled
-- connection may be left at one.
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

    DECLARE @Taken NVARCHAR(MAX), @GivenBack INT;

    BEGIN TRY
        BEGIN TRANSACTION;
        EXEC [dbo].[Outbox_Take] @Arg = @Arg, @Taken = @Taken OUTPUT, @GivenBack = @GivenBack OUTPUT;
        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH

    EXEC [dbo].[Outbox_Taken] @Taken = @Taken, @GivenBack = @GivenBack;
END
GO
