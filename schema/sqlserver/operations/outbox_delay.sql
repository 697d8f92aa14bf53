-- Makes ready messages due at another time: at due_ms, or delay_ms from now; returns how many. The rows of streams are moved
-- too, which the head's time decides. Locked rows are skipped.
IF OBJECT_ID(N'[dbo].[Outbox_Delay]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Delay] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Delay]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @DueMs BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.due_ms') AS BIGINT),
        DATEDIFF_BIG(MILLISECOND, @Epoch, SYSUTCDATETIME()) + CAST(JSON_VALUE(@Arg, '$.delay_ms') AS BIGINT));
    DECLARE @DueAt DATETIME2(3) = DATEADD(MILLISECOND, @DueMs % 86400000, DATEADD(DAY, @DueMs / 86400000, @Epoch));
    DECLARE @Ids TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NULL);
    DECLARE @Wanted TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Locked TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Count INT, @Streams NVARCHAR(MAX);

    INSERT INTO @Ids (MessageId)
    SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Arg, '$.ids') AS i;

    INSERT INTO @Rows (Seq)
    SELECT o.Seq
    FROM @Ids AS i INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON o.MessageId = i.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Held (Seq, StreamId)
        SELECT s.Seq, s.StreamId
        FROM @Rows AS r INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = r.Seq
        WHERE s.Status IN (0, 5)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        UPDATE s
        SET NextAttemptAt = @DueAt
        FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = h.Seq
        WHERE s.Status IN (0, 5)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Count = @@ROWCOUNT;

        INSERT INTO @Wanted (StreamId) SELECT DISTINCT h.StreamId FROM @Held AS h WHERE h.StreamId IS NOT NULL;
        IF @@ROWCOUNT > 0
        BEGIN
            INSERT INTO @Locked (StreamId)
            SELECT t.StreamId
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox_Stream] AS t WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON t.StreamId = w.StreamId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            SELECT @Streams = N'[' + STRING_AGG(CAST(StreamId AS NVARCHAR(MAX)), N',') + N']' FROM @Wanted;
            EXEC [dbo].[Outbox_Stream_Free] @Streams = @Streams;
        END

        SELECT CAST(@Count AS BIGINT);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
