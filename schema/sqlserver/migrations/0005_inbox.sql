-- The inbox: one row for each message that a handler has received. The queue is the table of the outbox, and QueueId is the
-- message there that the handler works on, or NULL if the message was handled as it was received. Seen counts how often the
-- message arrived, beginning with 1. ProcessedAt is set together with the handler's effects. The key takes up to 1,530
-- bytes, too many for a clustered index, but not for a nonclustered one: rows are stored in order of Seq.
IF OBJECT_ID(N'[dbo].[OutboxEntry]', N'U') IS NULL
    CREATE TABLE [dbo].[OutboxEntry] (
        Seq         BIGINT           IDENTITY(1, 1) NOT NULL,
        Source      NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        MessageId   NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        Handler     NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        ContentHash BINARY(32)       NOT NULL,
        FirstSeenAt DATETIME2(3)     NOT NULL,
        LastSeenAt  DATETIME2(3)     NOT NULL,
        Seen        INT              NOT NULL,
        QueueId     UNIQUEIDENTIFIER NULL,
        ProcessedAt DATETIME2(3)     NULL,
        Result      VARBINARY(MAX)   NULL,
        CONSTRAINT [PK_OutboxEntry] PRIMARY KEY CLUSTERED (Seq),
        CONSTRAINT [UQ_OutboxEntry_Key] UNIQUE NONCLUSTERED (Handler, Source, MessageId)
    );
GO
-- Entries by age, for purging.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[OutboxEntry]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_OutboxEntry_LastSeenAt]', 1))) = PARSENAME(N'[IX_OutboxEntry_LastSeenAt]', 1))
    CREATE INDEX [IX_OutboxEntry_LastSeenAt] ON [dbo].[OutboxEntry] (LastSeenAt);
GO
-- The entries with their states, which is defined here only: that of the message in the queue, or done if there is none.
-- CREATE VIEW must be alone in its batch, so it is in a string.
IF OBJECT_ID(N'[dbo].[OutboxEntry_View]', N'V') IS NULL
    EXEC (N'CREATE VIEW [dbo].[OutboxEntry_View] AS
SELECT e.Seq, e.Source, e.MessageId, e.Handler, e.ContentHash, e.FirstSeenAt, e.LastSeenAt, e.Seen, e.QueueId, e.ProcessedAt,
       CAST(COALESCE(s.Status, 2) AS INT) AS Status,
       CASE COALESCE(s.Status, 2) WHEN 0 THEN N''ready'' WHEN 1 THEN N''in progress'' WHEN 2 THEN N''done'' WHEN 3 THEN N''failed'' END AS State,
       COALESCE(s.RetryCount, 0) AS Attempts,
       (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WHERE a.Seq = o.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC) AS LastError,
       e.Result, CAST(e.Result AS VARCHAR(MAX)) AS ResultText
FROM [dbo].[OutboxEntry] AS e
LEFT JOIN [dbo].[Outbox] AS o ON o.MessageId = e.QueueId
LEFT JOIN [dbo].[Outbox_State] AS s ON s.Seq = o.Seq');
GO
