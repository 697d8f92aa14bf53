-- Inserts messages as Outbox_Enqueue does, and into the log: they get a position once they are committed.
-- Status 0 is also for the queue, 4 for the log alone.
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
    DECLARE @Added TABLE (
        Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Log_Enqueue;

        INSERT INTO [dbo].[Outbox]
            (MessageId, Uuid, Topic, Payload, Headers, CorrelationId, StreamKey, CreatedAt, DueTimeUtc, NextAttemptAt,
             Status, ProcessedAt, ProcessedBy)
        OUTPUT inserted.Seq, inserted.MessageId, inserted.Topic INTO @Added (Seq, MessageId, Topic)
        SELECT m.id, m.uuid, m.topic, SUBSTRING(@Payloads, m.[at] + 1, m.size), COALESCE(m.headers_text, m.headers), m.correlation_id, m.stream_key,
               @Now, m.due, CASE WHEN m.due > @Now THEN m.due ELSE @Now END,
               m.status, CASE m.status WHEN 4 THEN @Now END, CASE m.status WHEN 4 THEN N'log' END
        FROM (SELECT j.n, j.id, j.uuid, j.topic, j.[at], j.size, j.headers, j.headers_text, j.correlation_id, j.stream_key,
                     COALESCE(j.status, 0) AS status,
                     CASE WHEN j.due_ms IS NOT NULL
                          THEN DATEADD(MILLISECOND, j.due_ms % 86400000, DATEADD(DAY, j.due_ms / 86400000, CAST('1970-01-01' AS DATETIME2(3))))
                          WHEN j.delay_ms IS NOT NULL
                          THEN DATEADD(MILLISECOND, j.delay_ms % 86400000, DATEADD(DAY, j.delay_ms / 86400000, @Now)) END AS due
              FROM OPENJSON(@Arg) WITH (
                       n INT '$.n', id UNIQUEIDENTIFIER '$.id', uuid NVARCHAR(255) '$.uuid', topic NVARCHAR(255) '$.topic',
                       [at] INT '$.at', size INT '$.size', headers NVARCHAR(MAX) '$.headers' AS JSON,
                       headers_text NVARCHAR(MAX) '$.headers_text',
                       correlation_id NVARCHAR(255) '$.correlation_id', stream_key NVARCHAR(255) '$.stream_key',
                       due_ms BIGINT '$.due_ms', delay_ms BIGINT '$.delay_ms', status TINYINT '$.status') AS j) AS m
        ORDER BY m.n;

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
