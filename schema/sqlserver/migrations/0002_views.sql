-- The outbox for people: contents and states in one, states by name, and payloads as text, as far as they are text in the
-- database's code page. CREATE VIEW must be alone in its batch, so it is in a string.
IF OBJECT_ID(N'[dbo].[Outbox_View]', N'V') IS NULL
    EXEC (N'CREATE VIEW [dbo].[Outbox_View] AS
SELECT o.Seq, o.MessageId, o.Uuid, o.Topic, o.CorrelationId, o.StreamKey,
       CASE s.Status WHEN 0 THEN N''ready'' WHEN 5 THEN N''ready'' WHEN 1 THEN N''in progress'' WHEN 2 THEN N''done'' WHEN 3 THEN N''failed''
            ELSE N''not queued'' END AS State,
       s.Status, CAST(CASE WHEN s.Status = 2 THEN 1 ELSE 0 END AS BIT) AS IsProcessed, s.RetryCount,
       (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WHERE a.Seq = o.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC) AS LastError,
       o.Headers, CAST(o.Payload AS VARCHAR(MAX)) AS PayloadText,
       o.CreatedAt, o.DueTimeUtc, s.NextAttemptAt, l.LockedUntil, s.OwnerToken, s.ProcessedAt, w.Name AS ProcessedBy,
       (SELECT STRING_AGG(b.Name, N'', '') WITHIN GROUP (ORDER BY b.Bit)
        FROM (VALUES (1, N''Stored''), (2, N''EventStored''), (4, N''Published''), (8, N''ReceptorProcessed''), (16, N''PerspectiveProcessed''),
                     (256, N''own 0''), (512, N''own 1''), (1024, N''own 2''), (2048, N''own 3''), (4096, N''own 4''), (8192, N''own 5''), (16384, N''own 6''),
                     (32768, N''own 7''), (65536, N''own 8''), (131072, N''own 9''), (262144, N''own 10''), (524288, N''own 11''), (1048576, N''own 12''),
                     (2097152, N''own 13''), (4194304, N''own 14''), (8388608, N''own 15'')) AS b(Bit, Name)
        WHERE (COALESCE(s.Stages, 0) | 1) & b.Bit <> 0) AS Stages
FROM [dbo].[Outbox] AS o
LEFT JOIN [dbo].[Outbox_State] AS s ON s.Seq = o.Seq
LEFT JOIN [dbo].[Outbox_Lease] AS l ON l.OwnerToken = s.OwnerToken
LEFT JOIN [dbo].[Outbox_Worker] AS w ON w.WorkerId = s.WorkerId');
GO
