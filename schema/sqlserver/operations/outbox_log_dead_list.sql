-- Lists dead letters of consumer groups in log order: of one group and topic or of all, after a position. A reader asks
-- constantly for the requeued ones of its group and topic, which looks at nothing else. A page is found by one index alone
-- and then read by position, because a write locks the row first and its index entries after that.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Dead_List]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Dead_List] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Dead_List]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @After BIGINT = CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Requeued BIT = CASE JSON_VALUE(@Arg, '$.requeued') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Page TABLE (
        Position BIGINT NOT NULL, GroupName NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL);
    DECLARE @Dead TABLE (
        Position BIGINT NOT NULL, MessageId UNIQUEIDENTIFIER NOT NULL, Seq BIGINT NULL, GroupName NVARCHAR(255) NOT NULL, Attempts INT NOT NULL,
        Reason NVARCHAR(MAX) NULL, FailedAt DATETIME2(3) NOT NULL, Requeued BIT NOT NULL);

    IF @Requeued = 1
        INSERT INTO @Page (Position, GroupName, Topic)
        SELECT TOP (@Limit) d.Position, d.GroupName, d.Topic
        FROM [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK)
        WHERE d.Requeued = 1 AND d.GroupName = @Group AND d.Topic = @Topic AND d.Position > @After
        ORDER BY d.Position
        OPTION (MAXDOP 1);
    ELSE
        INSERT INTO @Page (Position, GroupName, Topic)
        SELECT TOP (@Limit) d.Position, d.GroupName, d.Topic
        FROM [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK)
        WHERE d.Position > @After AND (@Group IS NULL OR d.GroupName = @Group) AND (@Topic IS NULL OR d.Topic = @Topic)
        ORDER BY d.Position
        OPTION (RECOMPILE, MAXDOP 1);

    INSERT INTO @Dead (Position, MessageId, GroupName, Attempts, Reason, FailedAt, Requeued)
    SELECT d.Position, d.MessageId, d.GroupName, d.Attempts, d.Reason, d.FailedAt, d.Requeued
    FROM @Page AS p
    INNER JOIN [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK) ON d.Position = p.Position AND d.GroupName = p.GroupName AND d.Topic = p.Topic
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- Rows are found by id and read by Seq, because a delete locks the row first and its id after that.
    UPDATE d
    SET Seq = o.Seq
    FROM @Dead AS d INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = d.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT d.Position, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc), 0,
           d.GroupName, d.Attempts, d.Reason, DATEDIFF_BIG(MILLISECOND, @Epoch, d.FailedAt), d.Requeued
    FROM @Dead AS d INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = d.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
