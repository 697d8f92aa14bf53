-- For readers that hold a transaction while they handle: up to @Limit messages of a topic after the group's position, in
-- order. One transaction a group and topic has them at a time; others find nothing, and do not wait.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Next]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Next] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Next]
    @GroupName NVARCHAR(255),
    @Topic NVARCHAR(255),
    @Limit INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;

    DECLARE @Result INT;
    DECLARE @Resource NVARCHAR(255) = N'outbox ' + CONVERT(NVARCHAR(64),
        HASHBYTES('SHA2_256', N'[dbo].[Outbox_Log_Group]' + NCHAR(9) + @GroupName + NCHAR(9) + @Topic), 2);
    EXEC @Result = sp_getapplock @Resource = @Resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
    IF @Result < 0 SET @Limit = 0;

    SELECT TOP (@Limit) l.Position, o.Uuid, o.Payload, o.Headers
    FROM [dbo].[Outbox_Log] AS l INNER JOIN [dbo].[Outbox] AS o ON o.MessageId = l.MessageId
    WHERE l.Topic = @Topic
      AND l.Position > (SELECT g.Position FROM [dbo].[Outbox_Log_Group] AS g WHERE g.GroupName = @GroupName AND g.Topic = @Topic)
    ORDER BY l.Position
    OPTION (LOOP JOIN, MAXDOP 1);
END
GO
