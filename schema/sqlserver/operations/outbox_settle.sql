-- Ends or returns held messages of any number of claims in one transaction, counts ended steps in their joins, and returns
-- the receipts it refused and, under seq 0, the joins that have ended. Held means in progress with the same owner token; an
-- expired lease that nobody took is still held. Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3
-- fail. Stages are bits to add to those of a message. Rows are locked in order of Seq, and then written by their keys. The
-- error of an attempt goes into Outbox_Attempt; a release records one only if it is new. With delete_acked, the state of an
-- acknowledged message is deleted, unless something depends on it; the contents are left for purging. Leases that the
-- caller says are over end here; others when they expire. Returned messages go back to the queues of their streams. In the
-- library's own transaction, finished runs free their streams, last, so that no stream is locked while waiting for a join;
-- in a caller's, streams are left alone. The lease of a stream that is still held is kept. With skip_failed, a failed
-- message does not block its stream. Only steps of joins have flag 1, so ordinary messages need no lookup. With pass_over,
-- a row that another transaction has locked is skipped: its receipt is returned with status 1, busy, to be tried again, and
-- holds up only those behind it in its stream. @Own says that the open transaction is Outbox_Work's. A caller's transaction
-- is never ended here: an error undoes what was done here, and the caller decides. Its isolation level is not changed
-- either: READCOMMITTEDLOCK at the tables keeps SERIALIZABLE from locking the gaps next to rows that are read, where others
-- insert. Beside UPDLOCK that hint would be ignored, so there it is REPEATABLEREAD; and pass_over is ignored there, because
-- READPAST is refused in some levels.
IF OBJECT_ID(N'[dbo].[Outbox_Settle]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Settle] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Settle]
    @Arg NVARCHAR(MAX),
    @Own BIT = 0
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = CASE @Own WHEN 1 THEN 0 ELSE @@TRANCOUNT END;
    IF @Outer = 0
    BEGIN
        SET XACT_ABORT ON;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END
    ELSE SET XACT_ABORT OFF;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Worker NVARCHAR(100) = JSON_VALUE(@Arg, '$.worker');
    DECLARE @Backoff BIGINT = CAST(JSON_VALUE(@Arg, '$.backoff_ms') AS BIGINT);
    DECLARE @BackoffMax BIGINT = CAST(JSON_VALUE(@Arg, '$.backoff_max_ms') AS BIGINT);
    DECLARE @DeleteAcked BIT = CASE JSON_VALUE(@Arg, '$.delete_acked') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @PassOver BIT = CASE JSON_VALUE(@Arg, '$.pass_over') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Over NVARCHAR(MAX) = JSON_QUERY(@Arg, '$.over');
    DECLARE @SkipFailed BIT = CASE JSON_VALUE(@Arg, '$.skip_failed') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Streams NVARCHAR(MAX);
    DECLARE @WorkerId INT, @Asked INT, @Found INT, @Written INT = 0, @Ended NVARCHAR(MAX);
    DECLARE @Wanted TABLE (
        Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Outcome TINYINT NOT NULL, DueAt DATETIME2(3) NULL,
        Error NVARCHAR(MAX) NULL, Stages INT NULL, PRIMARY KEY (Seq, OwnerToken));
    DECLARE @Held TABLE (
        Seq BIGINT NOT NULL PRIMARY KEY, OwnerToken UNIQUEIDENTIFIER NOT NULL, Outcome TINYINT NOT NULL, DueAt DATETIME2(3) NULL,
        Error NVARCHAR(MAX) NULL, Stages INT NULL, RetryCount INT NOT NULL, Flags TINYINT NOT NULL, StreamId BIGINT NULL);
    DECLARE @Stuck TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    DECLARE @Ours TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Locked TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Ending TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, Streams NVARCHAR(MAX) NULL);
    DECLARE @Staying TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Settle;

        EXEC [dbo].[Outbox_Worker_Number] @Worker = @Worker, @Number = @WorkerId OUTPUT;

        INSERT INTO @Wanted (Seq, OwnerToken, Outcome, DueAt, Error, Stages)
        SELECT CAST(s.value AS BIGINT), a.owner, a.outcome,
               DATEADD(MILLISECOND, a.delay_ms % 86400000, DATEADD(DAY, a.delay_ms / 86400000, @Now)), a.error, a.stages
        FROM OPENJSON(@Arg, '$.groups') AS g
        CROSS APPLY OPENJSON(g.value) WITH (
                 owner UNIQUEIDENTIFIER '$.owner', outcome TINYINT '$.outcome', delay_ms BIGINT '$.delay_ms',
                 error NVARCHAR(MAX) '$.error', stages INT '$.stages') AS a
        CROSS APPLY OPENJSON(g.value, '$.seqs') AS s; -- not AS JSON, of which a compatible server cuts off long lists
        SET @Asked = @@ROWCOUNT;

        IF @Outer = 0 AND @PassOver = 1
            INSERT INTO @Held (Seq, OwnerToken, Outcome, DueAt, Error, Stages, RetryCount, Flags, StreamId)
            SELECT w.Seq, w.OwnerToken, w.Outcome, w.DueAt, w.Error, w.Stages, s.RetryCount, s.Flags, s.StreamId
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = w.Seq
            WHERE s.OwnerToken = w.OwnerToken
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        ELSE
            INSERT INTO @Held (Seq, OwnerToken, Outcome, DueAt, Error, Stages, RetryCount, Flags, StreamId)
            SELECT w.Seq, w.OwnerToken, w.Outcome, w.DueAt, w.Error, w.Stages, s.RetryCount, s.Flags, s.StreamId
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, REPEATABLEREAD, ROWLOCK, FORCESEEK) ON s.Seq = w.Seq
            WHERE s.OwnerToken = w.OwnerToken
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Found = @@ROWCOUNT;

        IF @Outer = 0 AND @PassOver = 1 AND @Found < @Asked
        BEGIN
            INSERT INTO @Stuck (StreamId, Seq)
            SELECT s.StreamId, MIN(w.Seq)
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = w.Seq
            WHERE s.StreamId IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM @Held AS h WHERE h.Seq = w.Seq)
              AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                              WHERE r.Seq = w.Seq AND (r.OwnerToken IS NULL OR r.OwnerToken <> w.OwnerToken))
            GROUP BY s.StreamId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            DELETE h FROM @Held AS h INNER JOIN @Stuck AS k ON k.StreamId = h.StreamId WHERE h.Seq > k.Seq;
            SET @Found = @Found - @@ROWCOUNT;
        END

        IF @DeleteAcked = 1
        BEGIN
            DELETE s
            FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK) ON s.Seq = h.Seq
            WHERE h.Outcome = 0 AND h.Flags = 0 AND (@Outer = 0 OR h.StreamId IS NULL) AND s.OwnerToken = h.OwnerToken AND s.Flags = 0
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @Written = @@ROWCOUNT;
        END

        IF @Written < @Found
        BEGIN
            UPDATE s
            SET Status = CASE WHEN h.Outcome = 0 THEN 2 WHEN h.Outcome = 3 THEN 3 WHEN h.StreamId IS NULL THEN 0 ELSE 5 END,
                OwnerToken = NULL,
                RetryCount = s.RetryCount + CASE h.Outcome WHEN 1 THEN 1 ELSE 0 END,
                NextAttemptAt = CASE
                    WHEN h.Outcome IN (0, 3) THEN s.NextAttemptAt
                    WHEN h.DueAt IS NOT NULL THEN h.DueAt
                    WHEN h.Outcome = 2 THEN @Now
                    WHEN s.RetryCount >= 30 THEN DATEADD(MILLISECOND, @BackoffMax, @Now)
                    WHEN @Backoff * POWER(CAST(2 AS BIGINT), s.RetryCount) > @BackoffMax THEN DATEADD(MILLISECOND, @BackoffMax, @Now)
                    ELSE DATEADD(MILLISECOND, @Backoff * POWER(CAST(2 AS BIGINT), s.RetryCount), @Now) END,
                ProcessedAt = CASE WHEN h.Outcome IN (0, 3) THEN @Now END,
                WorkerId = CASE WHEN h.Outcome IN (0, 3) THEN @WorkerId END,
                Flags = CASE WHEN h.Outcome = 3 AND @SkipFailed = 1 AND h.StreamId IS NOT NULL THEN s.Flags | 4 ELSE s.Flags END,
                Stages = CASE WHEN h.Stages IS NULL THEN s.Stages ELSE COALESCE(s.Stages, 0) | h.Stages END
            FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK) ON s.Seq = h.Seq
            WHERE s.OwnerToken = h.OwnerToken AND s.Flags = h.Flags
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @Written = @Written + @@ROWCOUNT;
        END

        -- Never if UPDLOCK is honoured: elsewhere a lease can be taken back, or the message made a step of a join, between
        -- the read and the write.
        IF @Written <> @Found
            THROW 51205, 'a lease was lost while it was settled; try again', 1;

        IF EXISTS (SELECT 1 FROM @Held WHERE Outcome IN (1, 3) OR Error IS NOT NULL)
            INSERT INTO [dbo].[Outbox_Attempt] (Seq, HappenedAt, WorkerId, Attempt, Outcome, Error)
            SELECT h.Seq, @Now, @WorkerId, h.RetryCount + 1, h.Outcome, h.Error
            FROM @Held AS h
            OUTER APPLY (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE a.Seq = h.Seq ORDER BY a.AttemptId DESC) AS l
            WHERE h.Outcome IN (1, 3) OR (h.Error IS NOT NULL AND (l.Error IS NULL OR CAST(l.Error AS VARBINARY(MAX)) <> CAST(h.Error AS VARBINARY(MAX))))
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        IF @Found < @Asked
        BEGIN
            IF @Outer = 0 AND @PassOver = 1
                SELECT w.Seq, CAST(w.OwnerToken AS CHAR(36)), NULL,
                       CASE WHEN NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                                             WHERE s.Seq = w.Seq AND (s.OwnerToken IS NULL OR s.OwnerToken <> w.OwnerToken))
                             AND EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) WHERE s.Seq = w.Seq)
                            THEN 1 END,
                       NULL, NULL, NULL
                FROM @Wanted AS w
                WHERE NOT EXISTS (SELECT 1 FROM @Held AS h WHERE h.Seq = w.Seq AND h.OwnerToken = w.OwnerToken)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            ELSE
                SELECT w.Seq, CAST(w.OwnerToken AS CHAR(36)), NULL, NULL, NULL, NULL, NULL
                FROM @Wanted AS w
                WHERE NOT EXISTS (SELECT 1 FROM @Held AS h WHERE h.Seq = w.Seq AND h.OwnerToken = w.OwnerToken);
        END

        IF @Over IS NOT NULL AND @Outer = 0
        BEGIN
            DELETE l
            FROM OPENJSON(@Over) AS o
            INNER JOIN [dbo].[Outbox_Lease] AS l WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON l.OwnerToken = CAST(o.value AS UNIQUEIDENTIFIER)
            WHERE l.Streams IS NULL
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            IF @@ROWCOUNT < (SELECT COUNT(*) FROM OPENJSON(@Over) AS o)
                INSERT INTO @Ending (OwnerToken, Streams)
                SELECT l.OwnerToken, l.Streams
                FROM OPENJSON(@Over) AS o
                INNER JOIN [dbo].[Outbox_Lease] AS l WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON l.OwnerToken = CAST(o.value AS UNIQUEIDENTIFIER)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        END

        IF EXISTS (SELECT 1 FROM @Held WHERE Flags & 1 = 1 AND Outcome IN (0, 3))
        BEGIN
            SELECT @Ended = N'[' + STRING_AGG(CAST(N'{"id":"' + CAST(o.MessageId AS NVARCHAR(36)) + N'","status":'
                + CASE h.Outcome WHEN 0 THEN N'1' ELSE N'2' END + N'}' AS NVARCHAR(MAX)), N',') + N']'
            FROM @Held AS h INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = h.Seq
            WHERE h.Flags & 1 = 1 AND h.Outcome IN (0, 3)
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            EXEC [dbo].[Outbox_Join_Count] @Arg = @Ended, @Outer = @Outer;
        END

        IF @Outer = 0
        BEGIN
            INSERT INTO @Ours (StreamId)
            SELECT h.StreamId FROM @Held AS h WHERE h.StreamId IS NOT NULL
            UNION
            SELECT CAST(i.value AS BIGINT) FROM @Ending AS e CROSS APPLY OPENJSON(e.Streams) AS i;

            -- Messages that a handler's own transaction has settled are refused here.
            IF @Found < @Asked
                INSERT INTO @Ours (StreamId)
                SELECT DISTINCT s.StreamId
                FROM @Wanted AS w INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = w.Seq
                WHERE s.StreamId IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @Ours AS u WHERE u.StreamId = s.StreamId)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            IF EXISTS (SELECT 1 FROM @Ours)
            BEGIN
                INSERT INTO @Locked (StreamId)
                SELECT t.StreamId
                FROM @Ours AS u INNER JOIN [dbo].[Outbox_Stream] AS t WITH (UPDLOCK, REPEATABLEREAD, ROWLOCK, FORCESEEK) ON t.StreamId = u.StreamId
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

                SELECT @Streams = N'[' + STRING_AGG(CAST(StreamId AS NVARCHAR(MAX)), N',') + N']' FROM @Ours;
                EXEC [dbo].[Outbox_Stream_Free] @Streams = @Streams;
            END

            IF EXISTS (SELECT 1 FROM @Ending)
            BEGIN
                INSERT INTO @Staying (OwnerToken)
                SELECT DISTINCT e.OwnerToken
                FROM @Ending AS e
                CROSS APPLY OPENJSON(e.Streams) AS i
                INNER JOIN [dbo].[Outbox_Stream] AS t WITH (NOLOCK, FORCESEEK) ON t.StreamId = CAST(i.value AS BIGINT)
                WHERE t.OwnerToken = e.OwnerToken
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

                DELETE l
                FROM @Ending AS e INNER JOIN [dbo].[Outbox_Lease] AS l WITH (ROWLOCK, FORCESEEK) ON l.OwnerToken = e.OwnerToken
                WHERE NOT EXISTS (SELECT 1 FROM @Staying AS y WHERE y.OwnerToken = e.OwnerToken)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            END
        END

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Settle;
        THROW;
    END CATCH
END
GO
