-- Inserts messages in the order of the list. The payloads come as one run of bytes, cut by offset and size,
-- so that no encoding stands between the caller's bytes and the row.
-- The due time is absolute or relative to the database's clock, which decides it.
-- An id that is there already ends the statement, and with XACT_ABORT OFF not the caller's transaction.
IF OBJECT_ID(N'[dbo].[Outbox_Enqueue]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Enqueue] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Enqueue]
    @Arg NVARCHAR(MAX),
    @Payloads VARBINARY(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT OFF;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();

    INSERT INTO [dbo].[Outbox]
        (MessageId, Uuid, Topic, Payload, Headers, CorrelationId, StreamKey, CreatedAt, DueTimeUtc, NextAttemptAt)
    SELECT m.id, m.uuid, m.topic, SUBSTRING(@Payloads, m.[at] + 1, m.size), COALESCE(m.headers_text, m.headers), m.correlation_id, m.stream_key,
           @Now, m.due, CASE WHEN m.due > @Now THEN m.due ELSE @Now END
    FROM (SELECT j.n, j.id, j.uuid, j.topic, j.[at], j.size, j.headers, j.headers_text, j.correlation_id, j.stream_key,
                 CASE WHEN j.due_ms IS NOT NULL
                      THEN DATEADD(MILLISECOND, j.due_ms % 86400000, DATEADD(DAY, j.due_ms / 86400000, CAST('1970-01-01' AS DATETIME2(3))))
                      WHEN j.delay_ms IS NOT NULL
                      THEN DATEADD(MILLISECOND, j.delay_ms % 86400000, DATEADD(DAY, j.delay_ms / 86400000, @Now)) END AS due
          FROM OPENJSON(@Arg) WITH (
                   n INT '$.n', id UNIQUEIDENTIFIER '$.id', uuid NVARCHAR(255) '$.uuid', topic NVARCHAR(255) '$.topic',
                   [at] INT '$.at', size INT '$.size', headers NVARCHAR(MAX) '$.headers' AS JSON,
                   headers_text NVARCHAR(MAX) '$.headers_text',
                   correlation_id NVARCHAR(255) '$.correlation_id', stream_key NVARCHAR(255) '$.stream_key',
                   due_ms BIGINT '$.due_ms', delay_ms BIGINT '$.delay_ms') AS j) AS m
    ORDER BY m.n;
END
GO
