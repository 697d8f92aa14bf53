-- Deletes dead letters of a consumer group: up to limit, in log order, after a position. The topic and the list of positions
-- are optional; requeued restricts them to those. The messages are then purged with the rest of the log. Returns how many, and
-- the position of the last.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Dead_Discard]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Dead_Discard] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Dead_Discard]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0
    BEGIN
        SET XACT_ABORT ON;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END
    ELSE SET XACT_ABORT OFF;

    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @After BIGINT = CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Requeued BIT = CASE JSON_VALUE(@Arg, '$.requeued') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @ByPositions BIT = CASE WHEN JSON_QUERY(@Arg, '$.positions') IS NULL THEN 0 ELSE 1 END;
    DECLARE @Wanted TABLE (Position BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Chosen TABLE (Position BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Count INT;

    INSERT INTO @Wanted (Position)
    SELECT DISTINCT CAST(i.value AS BIGINT) FROM OPENJSON(@Arg, '$.positions') AS i;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Log_Dead_Discard;

        IF @ByPositions = 1
            INSERT INTO @Chosen (Position)
            SELECT DISTINCT TOP (@Limit) d.Position
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox_Log_Dead] AS d WITH (READCOMMITTEDLOCK, FORCESEEK) ON d.GroupName = @Group AND d.Position = w.Position
            WHERE d.Position > @After AND (@Topic IS NULL OR d.Topic = @Topic) AND (@Requeued = 0 OR d.Requeued = 1)
            ORDER BY d.Position
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        ELSE
            INSERT INTO @Chosen (Position)
            SELECT DISTINCT TOP (@Limit) d.Position
            FROM [dbo].[Outbox_Log_Dead] AS d WITH (READCOMMITTEDLOCK, FORCESEEK)
            WHERE d.GroupName = @Group AND d.Position > @After AND (@Topic IS NULL OR d.Topic = @Topic) AND (@Requeued = 0 OR d.Requeued = 1)
            ORDER BY d.Position
            OPTION (RECOMPILE, MAXDOP 1);

        DELETE d
        FROM @Chosen AS c INNER JOIN [dbo].[Outbox_Log_Dead] AS d WITH (ROWLOCK, FORCESEEK) ON d.GroupName = @Group AND d.Position = c.Position
        WHERE (@Topic IS NULL OR d.Topic = @Topic)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Count = @@ROWCOUNT;

        SELECT CAST(@Count AS BIGINT), COALESCE(MAX(Position), 0) FROM @Chosen;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Log_Dead_Discard;
        THROW;
    END CATCH
END
GO
