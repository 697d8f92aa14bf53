-- Makes sure that a consumer group has a position in a topic, 0 if it is new.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Begin]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Begin] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Begin]
    @GroupName NVARCHAR(255),
    @Topic NVARCHAR(255)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    INSERT INTO [dbo].[Outbox_Log_Group] (GroupName, Topic)
    SELECT @GroupName, @Topic
    WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Group] WITH (UPDLOCK, HOLDLOCK, ROWLOCK, FORCESEEK) WHERE GroupName = @GroupName AND Topic = @Topic);
END
GO
