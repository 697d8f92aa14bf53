-- Inserts messages like Outbox_Enqueue, and into the log: they get a position once they are committed. With log_only they
-- are for the log alone and have no state.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Enqueue]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Enqueue] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Enqueue]
    @Arg NVARCHAR(MAX),
    @Payloads VARBINARY(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Outer INT = @@TRANCOUNT;
    DECLARE @LogOnly BIT = CASE JSON_VALUE(@Arg, '$[0].log_only') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Added TABLE (
        Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL,
        TopicKey BIGINT NOT NULL, StreamId BIGINT NULL, DueAt DATETIME2(3) NULL);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Log_Enqueue;

        INSERT INTO [dbo].[Outbox]
            (MessageId, Uuid, Topic, TopicKey, Payload, Headers, CorrelationId, StreamKey, StreamId, CreatedAt, DueTimeUtc)
        OUTPUT inserted.Seq, inserted.MessageId, inserted.Topic, inserted.TopicKey, inserted.StreamId, inserted.DueTimeUtc
        INTO @Added (Seq, MessageId, Topic, TopicKey, StreamId, DueAt)
        SELECT m.id, m.uuid, m.topic, m.topic_key, SUBSTRING(@Payloads, m.[at] + 1, m.size), COALESCE(m.headers_text, m.headers), m.correlation_id,
               m.stream_key, m.stream_id, @Now,
               CASE WHEN m.due_ms IS NOT NULL
                    THEN DATEADD(MILLISECOND, m.due_ms % 86400000, DATEADD(DAY, m.due_ms / 86400000, CAST('1970-01-01' AS DATETIME2(3))))
                    WHEN m.delay_ms IS NOT NULL
                    THEN DATEADD(MILLISECOND, m.delay_ms % 86400000, DATEADD(DAY, m.delay_ms / 86400000, @Now)) END
        FROM OPENJSON(@Arg) WITH (
                 n INT '$.n', id UNIQUEIDENTIFIER '$.id', uuid NVARCHAR(255) '$.uuid', topic NVARCHAR(255) '$.topic',
                 topic_key BIGINT '$.topic_key', [at] INT '$.at', size INT '$.size', headers NVARCHAR(MAX) '$.headers' AS JSON,
                 headers_text NVARCHAR(MAX) '$.headers_text',
                 correlation_id NVARCHAR(255) '$.correlation_id', stream_key NVARCHAR(255) '$.stream_key', stream_id BIGINT '$.stream_id',
                 due_ms BIGINT '$.due_ms', delay_ms BIGINT '$.delay_ms') AS m
        ORDER BY m.n;

        IF @LogOnly = 0
        BEGIN
            INSERT INTO [dbo].[Outbox_State] (Seq, TopicKey, StreamId, NextAttemptAt, Size, Status, Flags)
            SELECT a.Seq, a.TopicKey, a.StreamId, CASE WHEN a.DueAt > @Now THEN a.DueAt ELSE @Now END,
                   CAST(DATALENGTH(o.Payload) + COALESCE(DATALENGTH(o.Headers), 0) AS INT),
                   CASE WHEN a.StreamId IS NULL THEN 0 ELSE 5 END, 2
            FROM @Added AS a INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = a.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            INSERT INTO [dbo].[Outbox_Arrival] (Seq, StreamId, TopicKey)
            SELECT a.Seq, a.StreamId, a.TopicKey FROM @Added AS a WHERE a.StreamId IS NOT NULL;
        END

        INSERT INTO [dbo].[Outbox_Log_Pending] (Seq, MessageId, Topic)
        SELECT Seq, MessageId, Topic FROM @Added ORDER BY Seq;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Log_Enqueue;
        THROW;
    END CATCH
END
GO
