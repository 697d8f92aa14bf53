-- The outbox for people: contents and states in one, states by name, and payloads as text, as far as they are text in the
-- database's code page. CREATE VIEW must be alone in its batch, so it is in a string.
IF OBJECT_ID(N'[dbo].[Outbox_View]', N'V') IS NULL
    EXEC (N'CREATE VIEW [dbo].[Outbox_View] AS
SELECT o.Seq, o.MessageId, o.Uuid, o.Topic, o.CorrelationId, o.StreamKey,
       CASE s.Status WHEN 0 THEN N''ready'' WHEN 5 THEN N''ready'' WHEN 1 THEN N''in progress'' WHEN 2 THEN N''done'' WHEN 3 THEN N''failed''
            ELSE N''no longer queued'' END AS State,
       s.Status, CAST(CASE WHEN s.Status = 2 THEN 1 ELSE 0 END AS BIT) AS IsProcessed, s.RetryCount,
       (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WHERE a.Seq = o.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC) AS LastError,
       o.Headers, CAST(o.Payload AS VARCHAR(MAX)) AS PayloadText,
       o.CreatedAt, o.DueTimeUtc, s.NextAttemptAt, l.LockedUntil, s.OwnerToken, s.ProcessedAt, w.Name AS ProcessedBy
FROM [dbo].[Outbox] AS o
LEFT JOIN [dbo].[Outbox_State] AS s ON s.Seq = o.Seq
LEFT JOIN [dbo].[Outbox_Lease] AS l ON l.OwnerToken = s.OwnerToken
LEFT JOIN [dbo].[Outbox_Worker] AS w ON w.WorkerId = s.WorkerId');
GO
