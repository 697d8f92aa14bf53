-- Moves committed messages, up to @Most, from the arrivals to the queues of their streams, in order of Seq, and makes
-- streams that had none ready. One router at a time, and up to the highest Seq committed when it began, so that what a
-- publisher commits later cannot overtake what it committed before. Messages of a locked stream stay where they are: routing
-- waits for nobody. @More says whether there may be more. An uncommitted delete of a stream looks like no stream at all. The
-- insert then waits for it, briefly: a transaction that deletes streams already has every lock it needs. If the delete is
-- rolled back, the insert fails and the claim is tried again. Part of a claim's own transaction, at READ COMMITTED.
IF OBJECT_ID(N'[dbo].[Outbox_Stream_Route]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stream_Route] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stream_Route]
    @Most INT,
    @More BIT OUTPUT
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Highest BIGINT, @Looked INT;
    DECLARE @Arrived TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL, TopicKey BIGINT NOT NULL);
    DECLARE @Ids TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, TopicKey BIGINT NOT NULL);
    DECLARE @Held TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, NextAttemptAt DATETIME2(3) NOT NULL, Status TINYINT NOT NULL);
    DECLARE @Heads TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    DECLARE @Due TABLE (Seq BIGINT NOT NULL PRIMARY KEY, NextAttemptAt DATETIME2(3) NOT NULL);

    SET @More = 0;

    UPDATE r SET Turn = r.Turn + 1
    FROM [dbo].[Outbox_Router] AS r WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK)
    WHERE r.Id = 1
    OPTION (MAXDOP 1);
    IF @@ROWCOUNT = 0 RETURN;

    SELECT TOP (1) @Highest = Seq FROM [dbo].[Outbox_Arrival] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE Seq > 0
    ORDER BY Seq DESC
    OPTION (MAXDOP 1);

    INSERT INTO @Arrived (Seq, StreamId, TopicKey)
    SELECT TOP (@Most) Seq, StreamId, TopicKey FROM [dbo].[Outbox_Arrival] WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
    WHERE Seq <= @Highest
    ORDER BY Seq
    OPTION (MAXDOP 1);
    SET @Looked = @@ROWCOUNT;
    IF @Looked = 0 RETURN;

    INSERT INTO @Ids (StreamId, TopicKey) SELECT StreamId, MIN(TopicKey) FROM @Arrived GROUP BY StreamId;

    BEGIN TRY
        INSERT INTO [dbo].[Outbox_Stream] (StreamId, TopicKey, NextAttemptAt)
        SELECT i.StreamId, i.TopicKey, @Now
        FROM @Ids AS i
        WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Stream] AS t WITH (NOLOCK, FORCESEEK) WHERE t.StreamId = i.StreamId)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() = 2627 THROW 51205, 'a stream that was being deleted is there again; try again', 1;
        THROW;
    END CATCH

    INSERT INTO @Held (StreamId, NextAttemptAt, Status)
    SELECT t.StreamId, t.NextAttemptAt, t.Status
    FROM @Ids AS i INNER JOIN [dbo].[Outbox_Stream] AS t WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON t.StreamId = i.StreamId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    DELETE FROM @Arrived WHERE StreamId NOT IN (SELECT h.StreamId FROM @Held AS h);
    IF NOT EXISTS (SELECT 1 FROM @Arrived) RETURN;
    IF @Looked = @Most SET @More = 1;

    INSERT INTO [dbo].[Outbox_Queue] (StreamId, Seq) SELECT StreamId, Seq FROM @Arrived;

    DELETE a
    FROM @Arrived AS n INNER JOIN [dbo].[Outbox_Arrival] AS a WITH (ROWLOCK, FORCESEEK) ON a.Seq = n.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- A ready stream may have a new head: a message with a lower Seq that was committed late.
    INSERT INTO @Heads (StreamId, Seq)
    SELECT h.StreamId, q.Seq
    FROM @Held AS h
    CROSS APPLY (SELECT TOP (1) n.Seq FROM [dbo].[Outbox_Queue] AS n WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE n.StreamId = h.StreamId ORDER BY n.Seq) AS q
    WHERE h.Status = 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Due (Seq, NextAttemptAt)
    SELECT s.Seq, s.NextAttemptAt
    FROM @Heads AS d INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = d.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE h SET NextAttemptAt = CASE WHEN u.NextAttemptAt > @Now THEN u.NextAttemptAt WHEN h.NextAttemptAt > @Now THEN @Now ELSE h.NextAttemptAt END
    FROM @Held AS h INNER JOIN @Heads AS d ON d.StreamId = h.StreamId LEFT JOIN @Due AS u ON u.Seq = d.Seq;

    UPDATE t
    SET NextAttemptAt = h.NextAttemptAt
    FROM @Held AS h INNER JOIN [dbo].[Outbox_Stream] AS t WITH (ROWLOCK, FORCESEEK) ON t.StreamId = h.StreamId
    WHERE t.NextAttemptAt <> h.NextAttemptAt
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
