-- Entries of an inbox by their keys, as they stand; unknown ones are left out.
IF OBJECT_ID(N'[dbo].[Outbox_Entry_Get]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Entry_Get] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Entry_Get]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Wanted TABLE (
        N INT NOT NULL, Handler NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL,
        Source NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, MessageId NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL);

    INSERT INTO @Wanted (N, Handler, Source, MessageId)
    SELECT a.n, a.handler, a.source, a.message_id
    FROM OPENJSON(@Arg, '$.entries') WITH (
             n INT '$.n', handler NVARCHAR(255) '$.handler', source NVARCHAR(255) '$.source', message_id NVARCHAR(255) '$.message_id') AS a;

    -- As OutboxEntry_View has them. Not from there: the order in which it joins could not be forced.
    SELECT w.N, e.ContentHash, DATEDIFF_BIG(MILLISECOND, @Epoch, e.FirstSeenAt), DATEDIFF_BIG(MILLISECOND, @Epoch, e.LastSeenAt),
           e.Seen, CAST(e.QueueId AS CHAR(36)), DATEDIFF_BIG(MILLISECOND, @Epoch, e.ProcessedAt),
           CAST(COALESCE(o.Status, 2) AS INT), COALESCE(o.RetryCount, 0), o.LastError, e.Result
    FROM @Wanted AS w
    INNER JOIN [dbo].[OutboxEntry] AS e WITH (FORCESEEK) ON e.Handler = w.Handler AND e.Source = w.Source AND e.MessageId = w.MessageId
    LEFT JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = e.QueueId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
