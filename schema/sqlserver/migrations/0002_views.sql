-- The outbox for people: states by name and payloads as text, as far as they are text in the database's code page.
-- CREATE VIEW must be alone in its batch, and so it stands in a string.
IF OBJECT_ID(N'[dbo].[Outbox_View]', N'V') IS NULL
    EXEC (N'CREATE VIEW [dbo].[Outbox_View] AS
SELECT o.Seq, o.MessageId, o.Uuid, o.Topic, o.CorrelationId, o.StreamKey,
       CASE o.Status WHEN 0 THEN N''ready'' WHEN 1 THEN N''in progress'' WHEN 2 THEN N''done'' WHEN 3 THEN N''failed''
            WHEN 4 THEN N''log only'' END AS State,
       CAST(CASE WHEN o.Status = 2 THEN 1 ELSE 0 END AS BIT) AS IsProcessed, o.RetryCount, o.LastError, o.Headers,
       CAST(o.Payload AS VARCHAR(MAX)) AS PayloadText,
       o.CreatedAt, o.DueTimeUtc, o.NextAttemptAt, o.LockedUntil, o.OwnerToken, o.ProcessedAt, o.ProcessedBy
FROM [dbo].[Outbox] AS o');
GO
