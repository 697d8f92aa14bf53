-- Adds entries to an inbox, and touches existing ones; returns what Outbox_Entry_Get returns. It waits for an entry that is
-- not committed yet. It goes in order of the keys, so that two calls do not wait for each other. A duplicate key is caught
-- with XACT_ABORT OFF, because with ON it would doom the caller's transaction. It means that another transaction has
-- committed the entry since the lookup; an entry may also be purged before it is touched. Then the lookup is repeated.
-- READCOMMITTEDLOCK sees what is committed at any isolation level.
IF OBJECT_ID(N'[dbo].[Outbox_Entry_Add]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Entry_Add] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Entry_Add]
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

    DECLARE @Now DATETIME2(3), @Left INT, @Tries INT = 0;
    DECLARE @Wanted TABLE (
        Handler NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, Source NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL,
        MessageId NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, ContentHash BINARY(32) NOT NULL, QueueId UNIQUEIDENTIFIER NULL);
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Touched TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Entry_Add;

        INSERT INTO @Wanted (Handler, Source, MessageId, ContentHash, QueueId)
        SELECT a.handler, a.source, a.message_id, CONVERT(BINARY(32), a.hash, 2), a.queue_id
        FROM OPENJSON(@Arg, '$.entries') WITH (
                 handler NVARCHAR(255) '$.handler', source NVARCHAR(255) '$.source', message_id NVARCHAR(255) '$.message_id',
                 hash VARCHAR(64) '$.hash', queue_id UNIQUEIDENTIFIER '$.queue_id') AS a;
        SET @Left = @@ROWCOUNT;

        SET XACT_ABORT OFF;
        WHILE @Left > 0
        BEGIN
            SET @Now = SYSUTCDATETIME();
            SET @Tries = @Tries + 1;
            BEGIN TRY
                INSERT INTO [dbo].[OutboxEntry] (Source, MessageId, Handler, ContentHash, FirstSeenAt, LastSeenAt, Seen, QueueId, ProcessedAt)
                SELECT w.Source, w.MessageId, w.Handler, w.ContentHash, @Now, @Now, 0, w.QueueId, CASE WHEN w.QueueId IS NULL THEN @Now END
                FROM @Wanted AS w
                WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxEntry] AS e WITH (READCOMMITTEDLOCK, FORCESEEK)
                                  WHERE e.Handler = w.Handler AND e.Source = w.Source AND e.MessageId = w.MessageId)
                ORDER BY w.Handler, w.Source, w.MessageId
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            END TRY
            BEGIN CATCH
                IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() <> 1 OR @Tries >= 1000 THROW;
            END CATCH

            DELETE FROM @Found;
            INSERT INTO @Found (Seq)
            SELECT e.Seq
            FROM @Wanted AS w
            INNER JOIN [dbo].[OutboxEntry] AS e WITH (READCOMMITTEDLOCK, FORCESEEK)
                    ON e.Handler = w.Handler AND e.Source = w.Source AND e.MessageId = w.MessageId
            WHERE NOT EXISTS (SELECT 1 FROM @Touched AS t WHERE t.Seq = e.Seq)
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            -- New entries go from 0 to 1, existing ones grow by one.
            UPDATE e
            SET Seen = e.Seen + 1, LastSeenAt = CASE e.Seen WHEN 0 THEN e.LastSeenAt ELSE SYSUTCDATETIME() END
            OUTPUT inserted.Seq INTO @Touched (Seq)
            FROM @Found AS f INNER JOIN [dbo].[OutboxEntry] AS e WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON e.Seq = f.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @Left = @Left - @@ROWCOUNT;

            IF @Left > 0 AND @Tries >= 1000
                THROW 51000, 'entries of the inbox come and go faster than they can be touched; try again', 1;
        END

        EXEC [dbo].[Outbox_Entry_Get] @Arg = @Arg;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Entry_Add;
        THROW;
    END CATCH
END
GO
