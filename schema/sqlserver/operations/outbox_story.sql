-- What happened to one message beside its state: its attempts, its place in the log and in its stream, and the consumer groups
-- that gave it up. Each row is an event of a kind, with a time, a number, a status, a name and a text, as far as it has them.
-- It reads Log_Pending before Log, because messages move in that direction.
IF OBJECT_ID(N'[dbo].[Outbox_Story]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Story] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Story]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Seq BIGINT, @Stream BIGINT, @Status TINYINT, @Ahead BIGINT;
    DECLARE @Tried TABLE (AttemptId BIGINT NOT NULL PRIMARY KEY, HappenedAt DATETIME2(3) NOT NULL, Attempt INT NOT NULL, Outcome INT NOT NULL, Worker NVARCHAR(100) NULL);
    DECLARE @Logged TABLE (Position BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Story TABLE (
        Kind VARCHAR(10) NOT NULL, AtMs BIGINT NULL, Number BIGINT NULL, Status INT NULL, Name NVARCHAR(255) NULL, Detail NVARCHAR(MAX) NULL);

    SELECT @Seq = o.Seq FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.MessageId = @Id OPTION (MAXDOP 1);
    SELECT @Stream = o.StreamId FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.Seq = @Seq OPTION (MAXDOP 1);

    -- The error comes last and alone: a statement that returns large columns keeps the locks of their rows to its end.
    INSERT INTO @Tried (AttemptId, HappenedAt, Attempt, Outcome, Worker)
    SELECT TOP (@Limit) a.AttemptId, a.HappenedAt, a.Attempt, a.Outcome, w.Name
    FROM [dbo].[Outbox_Attempt] AS a WITH (FORCESEEK)
    LEFT JOIN [dbo].[Outbox_Worker] AS w WITH (FORCESEEK) ON w.WorkerId = a.WorkerId
    WHERE a.Seq = @Seq
    ORDER BY a.AttemptId DESC
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Story (Kind, AtMs, Number, Status, Name, Detail)
    SELECT 'attempt', DATEDIFF_BIG(MILLISECOND, @Epoch, t.HappenedAt), t.Attempt, t.Outcome, t.Worker, a.Error
    FROM @Tried AS t INNER JOIN [dbo].[Outbox_Attempt] AS a WITH (FORCESEEK) ON a.Seq = @Seq AND a.AttemptId = t.AttemptId
    ORDER BY t.AttemptId DESC
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Story (Kind, Name)
    SELECT 'unlogged', p.Topic
    FROM [dbo].[Outbox_Log_Pending] AS p WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE p.Seq = @Seq
    OPTION (MAXDOP 1);

    -- Found by id and read by position, because a delete locks the row first and its id after that.
    INSERT INTO @Logged (Position)
    SELECT TOP (@Limit) l.Position
    FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK)
    WHERE l.MessageId = @Id
    OPTION (MAXDOP 1);

    INSERT INTO @Story (Kind, AtMs, Number, Name)
    SELECT 'logged', DATEDIFF_BIG(MILLISECOND, @Epoch, l.LoggedAt), l.Position, l.Topic
    FROM @Logged AS f INNER JOIN [dbo].[Outbox_Log] AS l WITH (FORCESEEK) ON l.Position = f.Position
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Story (Kind, AtMs, Number, Status, Name, Detail)
    SELECT TOP (@Limit) 'given up', DATEDIFF_BIG(MILLISECOND, @Epoch, d.FailedAt), d.Position, d.Attempts, d.GroupName, d.Reason
    FROM @Story AS k INNER JOIN [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK) ON d.Position = k.Number
    WHERE k.Kind = 'logged'
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    IF EXISTS (SELECT 1 FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE q.StreamId = @Stream AND q.Seq = @Seq)
    BEGIN
        SELECT @Status = t.Status FROM [dbo].[Outbox_Stream] AS t WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE t.StreamId = @Stream
        OPTION (MAXDOP 1);
        SELECT @Ahead = COUNT(*)
        FROM (SELECT TOP (10000) q.Seq FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
              WHERE q.StreamId = @Stream AND q.Seq < @Seq) AS c
        OPTION (MAXDOP 1);
        INSERT INTO @Story (Kind, Number, Status) VALUES ('stream', @Ahead, @Status);
    END

    SELECT Kind, AtMs, Number, Status, Name, Detail FROM @Story;
END
GO
