-- The number of a worker, by name. A new worker gets one here; two concurrent calls may each give it one. The oldest counts.
-- It is read committed or not, at any isolation level, so that nobody waits for it.
IF OBJECT_ID(N'[dbo].[Outbox_Worker_Number]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Worker_Number] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Worker_Number]
    @Worker NVARCHAR(100),
    @Number INT OUTPUT
AS
BEGIN
    SET NOCOUNT ON;

    SET @Worker = COALESCE(@Worker, N'');
    SET @Number = NULL;
    SELECT TOP (1) @Number = WorkerId FROM [dbo].[Outbox_Worker] WITH (NOLOCK, FORCESEEK)
    WHERE Name = @Worker
    ORDER BY WorkerId
    OPTION (MAXDOP 1);

    IF @Number IS NULL
    BEGIN
        INSERT INTO [dbo].[Outbox_Worker] (Name) VALUES (@Worker);
        SET @Number = CAST(SCOPE_IDENTITY() AS INT);
    END
END
GO
