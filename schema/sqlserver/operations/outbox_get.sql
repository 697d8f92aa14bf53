-- The whole state of messages by message id, for people and tools; unknown ids are left out, and so are those deleted on
-- acknowledgement. A message without a state that is in the log is for the log alone (status 4): those that wait for a
-- position are read before those that have one, because messages move in that direction. Rows are found by id and read by
-- Seq, because a delete locks the row first and its id after that; contents last and alone, because a statement that returns
-- large columns keeps the locks of their rows to its end, and purging, which deletes them, has the state by then.
IF OBJECT_ID(N'[dbo].[Outbox_Get]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Get] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Get]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Wanted TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, Pending BIT NOT NULL);
    DECLARE @States TABLE (
        Seq BIGINT NOT NULL PRIMARY KEY, Status INT NULL, RetryCount INT NULL, NextAttemptAt DATETIME2(3) NULL, LockedUntil DATETIME2(3) NULL,
        OwnerToken UNIQUEIDENTIFIER NULL, ProcessedAt DATETIME2(3) NULL, Worker NVARCHAR(100) NULL, Stages INT NULL);
    DECLARE @Errors TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Error NVARCHAR(MAX) NULL);

    INSERT INTO @Wanted (MessageId)
    SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Arg, '$.ids') AS i;

    INSERT INTO @Rows (Seq, MessageId, Pending)
    SELECT o.Seq, w.MessageId, CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Pending] AS g WITH (FORCESEEK) WHERE g.MessageId = w.MessageId) THEN 1 ELSE 0 END
    FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = w.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @States (Seq, Status, RetryCount, NextAttemptAt, LockedUntil, OwnerToken, ProcessedAt, Worker, Stages)
    SELECT r.Seq, s.Status, s.RetryCount, s.NextAttemptAt, l.LockedUntil, s.OwnerToken, s.ProcessedAt, w.Name, s.Stages
    FROM @Rows AS r
    LEFT JOIN [dbo].[Outbox_State] AS s WITH (FORCESEEK) ON s.Seq = r.Seq
    LEFT JOIN [dbo].[Outbox_Lease] AS l WITH (FORCESEEK) ON l.OwnerToken = s.OwnerToken
    LEFT JOIN [dbo].[Outbox_Worker] AS w WITH (FORCESEEK) ON w.WorkerId = s.WorkerId
    WHERE s.Seq IS NOT NULL OR r.Pending = 1
       OR EXISTS (SELECT 1 FROM [dbo].[Outbox_Log] AS g WITH (FORCESEEK) WHERE g.MessageId = r.MessageId)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Errors (Seq, Error)
    SELECT s.Seq, (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WITH (FORCESEEK)
                   WHERE a.Seq = s.Seq AND a.Error IS NOT NULL ORDER BY a.AttemptId DESC)
    FROM @States AS s
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc),
           COALESCE(s.RetryCount, 0), CAST(CASE s.Status WHEN 5 THEN 0 ELSE COALESCE(s.Status, 4) END AS INT), DATEDIFF_BIG(MILLISECOND, @Epoch, COALESCE(s.NextAttemptAt, o.CreatedAt)),
           DATEDIFF_BIG(MILLISECOND, @Epoch, s.LockedUntil), CAST(s.OwnerToken AS CHAR(36)), e.Error,
           DATEDIFF_BIG(MILLISECOND, @Epoch, s.ProcessedAt), s.Worker, s.Stages
    FROM @States AS s
    INNER JOIN @Errors AS e ON e.Seq = s.Seq
    INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = s.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
