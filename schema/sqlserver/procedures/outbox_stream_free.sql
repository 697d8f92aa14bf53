-- Frees streams whose runs have ended. Messages that have ended leave the queues; a stream becomes ready, or blocked if its
-- head has failed and is not to be skipped, and one without messages is deleted. A stream that is ready or blocked already
-- is checked the same way. Locked streams are skipped. A caller that needs every one of them locks them first, in order;
-- that wait is short, because claiming and routing hold streams without waiting for anything. Messages are locked before
-- streams, so this waits for none. A locked message counts as still running: settling it frees the stream later, or else
-- its lease does on expiry, which is kept while the stream is held. A message that cannot be seen may be an uncommitted
-- delete; NOWAIT tells that from one that is gone.
-- Part of its caller's own transaction, at READ COMMITTED.
IF OBJECT_ID(N'[dbo].[Outbox_Stream_Free]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stream_Free] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stream_Free]
    @Streams NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @There INT, @Locked BIT = 0;
    DECLARE @Ids TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, RunLast BIGINT NOT NULL, NextAttemptAt DATETIME2(3) NOT NULL, Status TINYINT NOT NULL);
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL);
    DECLARE @Seen TABLE (Seq BIGINT NOT NULL PRIMARY KEY, NextAttemptAt DATETIME2(3) NOT NULL, Status TINYINT NOT NULL, Flags TINYINT NOT NULL, Sure BIT NOT NULL);
    DECLARE @Unseen TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Heads TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);

    INSERT INTO @Ids (StreamId) SELECT DISTINCT CAST(i.value AS BIGINT) FROM OPENJSON(@Streams) AS i;

    INSERT INTO @Held (StreamId, RunLast, NextAttemptAt, Status)
    SELECT t.StreamId, t.RunLast, t.NextAttemptAt, t.Status
    FROM @Ids AS i INNER JOIN [dbo].[Outbox_Stream] AS t WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON t.StreamId = i.StreamId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    IF @@ROWCOUNT = 0 RETURN;

    -- The messages in progress, otherwise the head.
    INSERT INTO @Rows (Seq, StreamId)
    SELECT q.Seq, h.StreamId
    FROM @Held AS h INNER JOIN [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, FORCESEEK) ON q.StreamId = h.StreamId AND q.Seq <= h.RunLast
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Rows (Seq, StreamId)
    SELECT q.Seq, h.StreamId
    FROM @Held AS h
    CROSS APPLY (SELECT TOP (1) n.Seq FROM [dbo].[Outbox_Queue] AS n WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE n.StreamId = h.StreamId ORDER BY n.Seq) AS q
    WHERE q.Seq > h.RunLast
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Seen (Seq, NextAttemptAt, Status, Flags, Sure)
    SELECT s.Seq, s.NextAttemptAt, s.Status, s.Flags, 1
    FROM @Rows AS r INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = r.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Unseen (Seq) SELECT r.Seq FROM @Rows AS r WHERE NOT EXISTS (SELECT 1 FROM @Seen AS s WHERE s.Seq = r.Seq);
    IF @@ROWCOUNT > 0
    BEGIN
        INSERT INTO @Seen (Seq, NextAttemptAt, Status, Flags, Sure)
        SELECT s.Seq, s.NextAttemptAt, s.Status, s.Flags, 0
        FROM @Unseen AS u INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = u.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        DELETE FROM @Unseen WHERE Seq IN (SELECT s.Seq FROM @Seen AS s);

        -- 1222 must not end the transaction. Only from here on, because a call that is cut off while this is OFF leaves the
        -- transaction open.
        IF EXISTS (SELECT 1 FROM @Unseen)
        BEGIN
            SET XACT_ABORT OFF;
            BEGIN TRY
                SELECT @There = COUNT(*)
                FROM @Unseen AS u INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, NOWAIT, FORCESEEK) ON s.Seq = u.Seq
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
                IF @There > 0 SET @Locked = 1;
            END TRY
            BEGIN CATCH
                IF ERROR_NUMBER() <> 1222 OR XACT_STATE() <> 1 THROW;
                SET @Locked = 1;
            END CATCH
            SET XACT_ABORT ON;
            IF @Locked = 1 INSERT INTO @Seen (Seq, NextAttemptAt, Status, Flags, Sure) SELECT u.Seq, @Now, 1, 0, 0 FROM @Unseen AS u;
        END
    END

    DELETE FROM @Held
    WHERE StreamId IN (SELECT r.StreamId FROM @Rows AS r INNER JOIN @Seen AS s ON s.Seq = r.Seq WHERE s.Status = 1)
       OR (Status = 1 AND StreamId IN (SELECT r.StreamId FROM @Rows AS r INNER JOIN @Seen AS s ON s.Seq = r.Seq WHERE s.Sure = 0));
    IF NOT EXISTS (SELECT 1 FROM @Held) RETURN;
    DELETE FROM @Rows WHERE StreamId NOT IN (SELECT h.StreamId FROM @Held AS h);

    DELETE q
    FROM @Rows AS r INNER JOIN [dbo].[Outbox_Queue] AS q WITH (ROWLOCK, FORCESEEK) ON q.StreamId = r.StreamId AND q.Seq = r.Seq
    WHERE NOT EXISTS (SELECT 1 FROM @Seen AS s WHERE s.Seq = r.Seq AND (s.Sure = 0 OR s.Status NOT IN (2, 3) OR (s.Status = 3 AND s.Flags & 4 = 0)))
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Heads (StreamId, Seq)
    SELECT h.StreamId, q.Seq
    FROM @Held AS h
    CROSS APPLY (SELECT TOP (1) n.Seq FROM [dbo].[Outbox_Queue] AS n WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE n.StreamId = h.StreamId ORDER BY n.Seq) AS q
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    DELETE FROM @Unseen;
    INSERT INTO @Unseen (Seq) SELECT d.Seq FROM @Heads AS d WHERE NOT EXISTS (SELECT 1 FROM @Seen AS s WHERE s.Seq = d.Seq);
    IF @@ROWCOUNT > 0
        INSERT INTO @Seen (Seq, NextAttemptAt, Status, Flags, Sure)
        SELECT s.Seq, s.NextAttemptAt, s.Status, s.Flags, 1
        FROM @Unseen AS u INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = u.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    DELETE t
    FROM @Held AS h INNER JOIN [dbo].[Outbox_Stream] AS t WITH (ROWLOCK, FORCESEEK) ON t.StreamId = h.StreamId
    WHERE NOT EXISTS (SELECT 1 FROM @Heads AS d WHERE d.StreamId = h.StreamId)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- A locked head that was never in progress counts as due: a claim looks at it again.
    UPDATE t
    SET OwnerToken = NULL,
        Status = CASE WHEN s.Status = 3 AND s.Flags & 4 = 0 THEN 2 ELSE 0 END,
        NextAttemptAt = CASE
            WHEN s.NextAttemptAt > @Now THEN s.NextAttemptAt
            WHEN h.Status <> 0 OR h.NextAttemptAt > @Now THEN @Now
            WHEN s.NextAttemptAt > h.NextAttemptAt THEN s.NextAttemptAt
            ELSE h.NextAttemptAt END
    FROM @Heads AS d
    INNER JOIN @Held AS h ON h.StreamId = d.StreamId
    INNER JOIN [dbo].[Outbox_Stream] AS t WITH (ROWLOCK, FORCESEEK) ON t.StreamId = d.StreamId
    LEFT JOIN @Seen AS s ON s.Seq = d.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
