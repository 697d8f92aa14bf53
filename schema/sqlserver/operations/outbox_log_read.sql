-- Reads messages of a topic, or of all topics if it is '', after a position and in order: up to limit messages and up to a
-- number of bytes; a larger message comes alone. The age counts from when the message was given its position. If the log
-- ends before the position, or has a different message there than the reader has read, the database is older than the
-- reader: the result is one row without a message, with the last position given. Contents are written once, so readers do
-- not wait for settling. Rows are found by id and read by Seq, because a delete locks the row first and its id after that.
-- The time is read by position: the index of topics, by which a page is found, does not have it. Contents are read last and
-- alone, because a statement that returns large columns keeps the locks of their rows to its end.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Read]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Read] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Read]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @After BIGINT = CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT);
    DECLARE @MessageId UNIQUEIDENTIFIER = NULLIF(JSON_VALUE(@Arg, '$.message'), N'');
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Bytes BIGINT = CAST(JSON_VALUE(@Arg, '$.bytes') AS BIGINT);
    DECLARE @Last BIGINT;
    DECLARE @Page TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    DECLARE @Sizes TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, Size BIGINT NOT NULL);
    DECLARE @Fits TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    DECLARE @Timed TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, LoggedAt DATETIME2(3) NOT NULL);

    -- A counter that a sequencer has locked is skipped: the log is growing then, and the next read looks again.
    SELECT @Last = Position FROM [dbo].[Outbox_Log_Counter] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE Id = 1;

    IF @Last < @After
       OR EXISTS (SELECT 1 FROM [dbo].[Outbox_Log] WITH (FORCESEEK) WHERE Position = @After AND MessageId <> @MessageId)
    BEGIN
        SELECT COALESCE(@Last, 0), '', N'', N'', CAST(0x AS VARBINARY(MAX)), N'', N'', N'', CAST(0 AS BIGINT), CAST(0 AS BIGINT), 0,
               CAST(0 AS BIGINT), CAST(0 AS BIGINT);
        RETURN;
    END

    -- By its length: = takes characters that the database's collation ignores for nothing, and a topic may be of such.
    IF DATALENGTH(@Topic) = 0
        INSERT INTO @Page (Position, Seq)
        SELECT TOP (@Limit) l.Position, o.Seq
        FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK) INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = l.MessageId
        WHERE l.Position > @After
        ORDER BY l.Position
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    ELSE
        INSERT INTO @Page (Position, Seq)
        SELECT TOP (@Limit) l.Position, o.Seq
        FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK) INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = l.MessageId
        WHERE l.Topic = @Topic AND l.Position > @After
        ORDER BY l.Position
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Sizes (Position, Seq, Size)
    SELECT p.Position, p.Seq, CAST(DATALENGTH(o.Payload) AS BIGINT) + COALESCE(DATALENGTH(o.Headers), 0)
    FROM @Page AS p INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = p.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Fits (Position, Seq)
    SELECT s.Position, s.Seq
    FROM (SELECT Position, Seq, Size, SUM(Size) OVER (ORDER BY Position ROWS UNBOUNDED PRECEDING) AS Total FROM @Sizes) AS s
    WHERE s.Total <= @Bytes OR s.Total = s.Size;

    INSERT INTO @Timed (Position, Seq, LoggedAt)
    SELECT f.Position, f.Seq, l.LoggedAt
    FROM @Fits AS f INNER JOIN [dbo].[Outbox_Log] AS l WITH (FORCESEEK) ON l.Position = f.Position
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT t.Position, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc), 0,
           DATEDIFF_BIG(MILLISECOND, @Epoch, t.LoggedAt), DATEDIFF_BIG(MILLISECOND, t.LoggedAt, @Now)
    FROM @Timed AS t INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = t.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
