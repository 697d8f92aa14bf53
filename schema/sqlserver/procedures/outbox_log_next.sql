-- For readers that hold a transaction while they handle: up to @Limit messages of a topic after the group's position, in
-- order. The row of the group is locked until the transaction ends; others skip it and find nothing.
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
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @After BIGINT;
    DECLARE @Page TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    UPDATE g SET Position = Position FROM [dbo].[Outbox_Log_Group] AS g WITH (UPDLOCK, READPAST, REPEATABLEREAD, ROWLOCK, FORCESEEK) WHERE GroupName = @GroupName AND Topic = @Topic;
    IF @@ROWCOUNT = 1
        SELECT @After = Position FROM [dbo].[Outbox_Log_Group] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE GroupName = @GroupName AND Topic = @Topic;

    -- Rows are found by id and read by Seq, because a delete locks the row first and its id after that.
    INSERT INTO @Page (Position, Seq)
    SELECT TOP (@Limit) l.Position, o.Seq
    FROM [dbo].[Outbox_Log] AS l WITH (READCOMMITTEDLOCK, FORCESEEK) INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.MessageId = l.MessageId
    WHERE l.Topic = @Topic AND l.Position > @After
    ORDER BY l.Position
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT p.Position, o.Uuid, o.Payload, o.Headers
    FROM @Page AS p INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = p.Seq
    ORDER BY p.Position
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
