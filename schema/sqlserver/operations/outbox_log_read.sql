-- Reads up to limit messages of a topic after a position, in order; where the topic is '', of all topics. The age is since
-- the message got its position.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Read]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Read] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Read]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @After BIGINT = CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);

    IF @Topic = N''
        SELECT TOP (@Limit) l.Position, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
               DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc), o.RetryCount,
               DATEDIFF_BIG(MILLISECOND, @Epoch, l.LoggedAt), DATEDIFF_BIG(MILLISECOND, l.LoggedAt, @Now)
        FROM [dbo].[Outbox_Log] AS l INNER JOIN [dbo].[Outbox] AS o ON o.MessageId = l.MessageId
        WHERE l.Position > @After
        ORDER BY l.Position
        OPTION (LOOP JOIN, MAXDOP 1);
    ELSE
        SELECT TOP (@Limit) l.Position, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
               DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc), o.RetryCount,
               DATEDIFF_BIG(MILLISECOND, @Epoch, l.LoggedAt), DATEDIFF_BIG(MILLISECOND, l.LoggedAt, @Now)
        FROM [dbo].[Outbox_Log] AS l INNER JOIN [dbo].[Outbox] AS o ON o.MessageId = l.MessageId
        WHERE l.Topic = @Topic AND l.Position > @After
        ORDER BY l.Position
        OPTION (LOOP JOIN, MAXDOP 1);
END
GO
