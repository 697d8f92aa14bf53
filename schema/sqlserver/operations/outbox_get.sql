-- The whole state of messages by message id, for people and tools; unknown ids are left out.
IF OBJECT_ID(N'[dbo].[Outbox_Get]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Get] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Get]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Wanted TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    INSERT INTO @Wanted (MessageId)
    SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Arg, '$.ids') AS i;

    SELECT o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc),
           o.RetryCount, CAST(o.Status AS INT), DATEDIFF_BIG(MILLISECOND, @Epoch, o.NextAttemptAt),
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.LockedUntil), CAST(o.OwnerToken AS CHAR(36)), o.LastError,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.ProcessedAt), o.ProcessedBy
    FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = w.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
