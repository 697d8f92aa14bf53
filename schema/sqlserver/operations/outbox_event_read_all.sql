-- Reads the log after a position, in order: up to limit positions and up to a number of bytes; a larger event comes alone.
-- Messages that are no events come without contents and with version 0, so that one call never looks at more than limit rows.
-- What is an event is said by its row: anybody may send a message with such headers.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Read_All]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Event_Read_All] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Event_Read_All]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @After BIGINT = CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT);
    DECLARE @To BIGINT = CAST(JSON_VALUE(@Arg, '$.to') AS BIGINT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Bytes BIGINT = CAST(JSON_VALUE(@Arg, '$.bytes') AS BIGINT);
    DECLARE @Page TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    DECLARE @Sizes TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, StreamNo BIGINT NULL, Version BIGINT NULL, Size BIGINT NOT NULL);
    DECLARE @Fits TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, StreamNo BIGINT NULL, Version BIGINT NULL, Name NVARCHAR(255) NULL);

    INSERT INTO @Page (Position, Seq)
    SELECT TOP (@Limit) l.Position, o.Seq
    FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK) INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = l.MessageId
    WHERE l.Position > @After AND l.Position <= @To
    ORDER BY l.Position
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Sizes (Position, Seq, StreamNo, Version, Size)
    SELECT p.Position, p.Seq, e.StreamNo, e.Version, 0
    FROM @Page AS p LEFT JOIN [dbo].[Outbox_Event] AS e WITH (FORCESEEK) ON e.Seq = p.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- By the key of the row: a delete locks the row first and its Seq after that.
    UPDATE s
    SET Size = e.Size
    FROM @Sizes AS s INNER JOIN [dbo].[Outbox_Event] AS e WITH (FORCESEEK) ON e.StreamNo = s.StreamNo AND e.Version = s.Version
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Fits (Position, Seq, StreamNo, Version)
    SELECT s.Position, s.Seq, s.StreamNo, s.Version
    FROM (SELECT Position, Seq, StreamNo, Version, Size, SUM(Size) OVER (ORDER BY Position ROWS UNBOUNDED PRECEDING) AS Total FROM @Sizes) AS s
    WHERE s.Total <= @Bytes OR s.Total = s.Size;

    UPDATE f
    SET Name = t.Name
    FROM @Fits AS f INNER JOIN [dbo].[Outbox_Event_Stream] AS t WITH (FORCESEEK) ON t.StreamNo = f.StreamNo
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- Contents last and alone: a statement that returns large columns keeps the locks of their rows to its end.
    SELECT COALESCE(f.Name, N''), CASE WHEN o.Seq IS NULL THEN 0 ELSE f.Version END, f.Position, COALESCE(CAST(o.MessageId AS CHAR(36)), ''), COALESCE(o.Uuid, N''), COALESCE(o.Topic, N''),
           COALESCE(o.Payload, 0x), o.Headers, o.CorrelationId, COALESCE(DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), 0), CAST(0 AS BIGINT)
    FROM @Fits AS f LEFT JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = f.Seq AND f.Version IS NOT NULL
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
