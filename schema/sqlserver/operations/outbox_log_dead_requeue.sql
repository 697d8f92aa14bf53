-- Has a consumer group deliver again, with a fresh retry budget, what it has given up: up to limit of them in order of the
-- log, after a position. The topic and the list of positions are optional. Answers how many, and the last one's position.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Dead_Requeue]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Dead_Requeue] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Dead_Requeue]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @After BIGINT = CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @ByPositions BIT = CASE WHEN JSON_QUERY(@Arg, '$.positions') IS NULL THEN 0 ELSE 1 END;
    DECLARE @Wanted TABLE (Position BIGINT NOT NULL);
    DECLARE @Chosen TABLE (Position BIGINT NOT NULL);
    DECLARE @Count INT;

    INSERT INTO @Wanted (Position)
    SELECT CAST(i.value AS BIGINT) FROM OPENJSON(@Arg, '$.positions') AS i;

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Chosen (Position)
        SELECT TOP (@Limit) d.Position FROM [dbo].[Outbox_Log_Dead] AS d WITH (UPDLOCK, ROWLOCK)
        WHERE d.GroupName = @Group AND d.Position > @After AND d.Requeued = 0
          AND (@Topic IS NULL OR d.Topic = @Topic)
          AND (@ByPositions = 0 OR d.Position IN (SELECT w.Position FROM @Wanted AS w))
        ORDER BY d.Position
        OPTION (RECOMPILE, MAXDOP 1);

        UPDATE [dbo].[Outbox_Log_Dead] WITH (ROWLOCK)
        SET Requeued = 1, Attempts = 0
        WHERE GroupName = @Group AND (@Topic IS NULL OR Topic = @Topic) AND Position IN (SELECT Position FROM @Chosen)
        OPTION (LOOP JOIN, MAXDOP 1);
        SET @Count = @@ROWCOUNT;

        SELECT CAST(@Count AS BIGINT), COALESCE(MAX(Position), 0) FROM @Chosen;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
