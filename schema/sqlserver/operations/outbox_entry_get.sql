-- Reads entries of an inbox by their keys; unknown ones are left out. Rows are found by key or id and read by Seq, because a
-- delete locks the row first and its other keys after that; the entry with its result last and alone, because a statement
-- that returns large columns keeps the locks of their rows to its end.
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
    DECLARE @Found TABLE (
        N INT NOT NULL, Seq BIGINT NOT NULL, QueueSeq BIGINT NULL, Status INT NULL, RetryCount INT NULL, Error NVARCHAR(MAX) NULL);

    INSERT INTO @Wanted (N, Handler, Source, MessageId)
    SELECT a.n, a.handler, a.source, a.message_id
    FROM OPENJSON(@Arg, '$.entries') WITH (
             n INT '$.n', handler NVARCHAR(255) '$.handler', source NVARCHAR(255) '$.source', message_id NVARCHAR(255) '$.message_id') AS a;

    INSERT INTO @Found (N, Seq)
    SELECT w.N, e.Seq
    FROM @Wanted AS w
    INNER JOIN [dbo].[OutboxEntry] AS e WITH (READCOMMITTEDLOCK, FORCESEEK) ON e.Handler = w.Handler AND e.Source = w.Source AND e.MessageId = w.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE f
    SET QueueSeq = o.Seq
    FROM @Found AS f
    INNER JOIN [dbo].[OutboxEntry] AS e WITH (READCOMMITTEDLOCK, FORCESEEK) ON e.Seq = f.Seq
    INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.MessageId = e.QueueId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE f
    SET Status = s.Status, RetryCount = s.RetryCount
    FROM @Found AS f INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = f.QueueSeq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE f
    SET Error = (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WITH (READCOMMITTEDLOCK, FORCESEEK)
                 WHERE a.Seq = f.QueueSeq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC)
    FROM @Found AS f
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- Like OutboxEntry_View, whose join order could not be forced.
    SELECT f.N, e.ContentHash, DATEDIFF_BIG(MILLISECOND, @Epoch, e.FirstSeenAt), DATEDIFF_BIG(MILLISECOND, @Epoch, e.LastSeenAt),
           e.Seen, CAST(e.QueueId AS CHAR(36)), DATEDIFF_BIG(MILLISECOND, @Epoch, e.ProcessedAt),
           COALESCE(f.Status, 2), COALESCE(f.RetryCount, 0), f.Error, e.Result
    FROM @Found AS f INNER JOIN [dbo].[OutboxEntry] AS e WITH (READCOMMITTEDLOCK, FORCESEEK) ON e.Seq = f.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
