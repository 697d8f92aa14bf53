-- Reads the events of a stream from a version on, forwards or backwards: up to limit events and up to a number of bytes; a
-- larger event comes alone. Each row has the version at which the stream ends in that direction, so that the reader needs no
-- further call to know. Of an archived stream, unless that is asked for, it returns one row with version -1. Events are
-- written once, so readers wait for nobody but an append that is not committed.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Read]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Event_Read] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Event_Read]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Stream NVARCHAR(255) = JSON_VALUE(@Arg, '$.stream');
    DECLARE @From BIGINT = CAST(JSON_VALUE(@Arg, '$.from') AS BIGINT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Bytes BIGINT = CAST(JSON_VALUE(@Arg, '$.bytes') AS BIGINT);
    DECLARE @Backwards BIT = CASE JSON_VALUE(@Arg, '$.backwards') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Asked BIT = CASE JSON_VALUE(@Arg, '$.archived') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @StreamNo BIGINT, @Version BIGINT, @Hidden BIGINT, @Archived BIT;
    DECLARE @Page TABLE (Place BIGINT NOT NULL PRIMARY KEY, Version BIGINT NOT NULL, Seq BIGINT NOT NULL, Size INT NOT NULL);
    DECLARE @Fits TABLE (Version BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);

    SELECT @StreamNo = s.StreamNo, @Version = s.Version, @Hidden = s.Hidden, @Archived = s.Archived
    FROM [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTED, FORCESEEK) WHERE s.Name = @Stream
    OPTION (MAXDOP 1);

    IF @Archived = 1 AND @Asked = 0
    BEGIN
        SELECT @Stream, CAST(-1 AS BIGINT), CAST(0 AS BIGINT), '', N'', N'', CAST(0x AS VARBINARY(MAX)), N'', N'', CAST(0 AS BIGINT), @Version;
        RETURN;
    END

    IF @Backwards = 1
        INSERT INTO @Page (Place, Version, Seq, Size)
        SELECT TOP (@Limit) -e.Version, e.Version, e.Seq, e.Size
        FROM [dbo].[Outbox_Event] AS e WITH (READCOMMITTED, FORCESEEK)
        WHERE e.StreamNo = @StreamNo AND e.Version <= @From AND e.Version > @Hidden
        ORDER BY e.Version DESC
        OPTION (MAXDOP 1);
    ELSE
        INSERT INTO @Page (Place, Version, Seq, Size)
        SELECT TOP (@Limit) e.Version, e.Version, e.Seq, e.Size
        FROM [dbo].[Outbox_Event] AS e WITH (READCOMMITTED, FORCESEEK)
        WHERE e.StreamNo = @StreamNo AND e.Version >= @From AND e.Version > @Hidden
        ORDER BY e.Version
        OPTION (MAXDOP 1);

    INSERT INTO @Fits (Version, Seq)
    SELECT s.Version, s.Seq
    FROM (SELECT Version, Seq, Size, SUM(CAST(Size AS BIGINT)) OVER (ORDER BY Place ROWS UNBOUNDED PRECEDING) AS Total FROM @Page) AS s
    WHERE s.Total <= @Bytes OR s.Total = s.Size;

    SELECT @Stream, f.Version, CAST(0 AS BIGINT), CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), CASE @Backwards WHEN 1 THEN @Hidden + 1 ELSE @Version END
    FROM @Fits AS f INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTED, FORCESEEK) ON o.Seq = f.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
