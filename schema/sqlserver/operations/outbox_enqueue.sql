-- Inserts messages in the order of the list, contents and states. The payloads come as one run of bytes, cut by offset and
-- size, so that the caller's bytes are stored without any encoding. The due time is absolute or relative, by the database's
-- clock. A duplicate id ends the statement, but not the caller's transaction.
IF OBJECT_ID(N'[dbo].[Outbox_Enqueue]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Enqueue] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Enqueue]
    @Arg NVARCHAR(MAX),
    @Payloads VARBINARY(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Added TABLE (Seq BIGINT NOT NULL PRIMARY KEY, TopicKey BIGINT NOT NULL, DueAt DATETIME2(3) NULL);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Enqueue;

        INSERT INTO [dbo].[Outbox]
            (MessageId, Uuid, Topic, TopicKey, Payload, Headers, CorrelationId, StreamKey, CreatedAt, DueTimeUtc)
        OUTPUT inserted.Seq, inserted.TopicKey, inserted.DueTimeUtc INTO @Added (Seq, TopicKey, DueAt)
        SELECT m.id, m.uuid, m.topic, m.topic_key, SUBSTRING(@Payloads, m.[at] + 1, m.size), COALESCE(m.headers_text, m.headers), m.correlation_id,
               m.stream_key, @Now,
               CASE WHEN m.due_ms IS NOT NULL
                    THEN DATEADD(MILLISECOND, m.due_ms % 86400000, DATEADD(DAY, m.due_ms / 86400000, CAST('1970-01-01' AS DATETIME2(3))))
                    WHEN m.delay_ms IS NOT NULL
                    THEN DATEADD(MILLISECOND, m.delay_ms % 86400000, DATEADD(DAY, m.delay_ms / 86400000, @Now)) END
        FROM OPENJSON(@Arg) WITH (
                 n INT '$.n', id UNIQUEIDENTIFIER '$.id', uuid NVARCHAR(255) '$.uuid', topic NVARCHAR(255) '$.topic',
                 topic_key BIGINT '$.topic_key', [at] INT '$.at', size INT '$.size', headers NVARCHAR(MAX) '$.headers' AS JSON,
                 headers_text NVARCHAR(MAX) '$.headers_text',
                 correlation_id NVARCHAR(255) '$.correlation_id', stream_key NVARCHAR(255) '$.stream_key',
                 due_ms BIGINT '$.due_ms', delay_ms BIGINT '$.delay_ms') AS m
        ORDER BY m.n;

        INSERT INTO [dbo].[Outbox_State] (Seq, TopicKey, NextAttemptAt, Size)
        SELECT a.Seq, a.TopicKey, CASE WHEN a.DueAt > @Now THEN a.DueAt ELSE @Now END,
               CAST(DATALENGTH(o.Payload) + COALESCE(DATALENGTH(o.Headers), 0) AS INT)
        FROM @Added AS a INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = a.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Enqueue;
        THROW;
    END CATCH
END
GO
