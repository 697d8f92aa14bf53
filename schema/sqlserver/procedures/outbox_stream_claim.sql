-- Takes messages of ordered streams for a claim: of each topic up to its quota, up to @Most in all and @Room in bytes; with
-- @Larger, the very first may be larger. @Topics is a JSON array of key and quota. Returns a JSON array of what it took, or
-- NULL. The streams that have waited longest are taken; of each, the first due messages, in order and without a gap, up to
-- a run, and fewer if many streams are ready, so that many handlers can work at once. A locked message ends the run before
-- it. A stream from which nothing can be taken is tried again a little later. RunLast is not in the index of ready streams,
-- so the pick locks the row itself too. @Share is that of this worker among several, in virtual partitions: of the streams
-- that have waited longest, as many for each worker as are wanted, those between low and high come first, and with them
-- those that have waited for patience_ms. So each worker tends to get the same streams again, and none waits for a worker
-- that does not come. Part of a claim's own transaction, at READ COMMITTED. It waits for nobody.
IF OBJECT_ID(N'[dbo].[Outbox_Stream_Claim]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stream_Claim] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stream_Claim]
    @Owner UNIQUEIDENTIFIER,
    @Topics NVARCHAR(MAX),
    @Run INT,
    @Most INT,
    @Room BIGINT,
    @Larger BIT,
    @Share NVARCHAR(MAX),
    @Seqs NVARCHAR(MAX) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Turn INT = 0, @Key BIGINT, @Quota INT, @Streams INT, @Depth INT, @Count INT, @Behind NVARCHAR(MAX);
    DECLARE @Low INT = CAST(JSON_VALUE(@Share, '$.low') AS INT), @High INT = CAST(JSON_VALUE(@Share, '$.high') AS INT);
    DECLARE @Workers INT = CAST(JSON_VALUE(@Share, '$.workers') AS INT), @Looked INT;
    DECLARE @Patient DATETIME2(3) = DATEADD(MILLISECOND, -CAST(JSON_VALUE(@Share, '$.patience_ms') AS INT), @Now);
    DECLARE @Ready TABLE (Turn INT IDENTITY(1, 1) NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL);
    DECLARE @Picked TABLE (Turn INT IDENTITY(1, 1) NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL, RunLast BIGINT NOT NULL);
    DECLARE @Heads TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL, Turn INT NOT NULL, Place BIGINT NOT NULL);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Size BIGINT NOT NULL);
    DECLARE @Gaps TABLE (Turn INT NOT NULL PRIMARY KEY, Place BIGINT NOT NULL);
    DECLARE @Whole TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL, Turn INT NOT NULL, Place BIGINT NOT NULL, Size BIGINT NOT NULL);
    DECLARE @Taken TABLE (Seq BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL, Size BIGINT NOT NULL);
    DECLARE @Runs TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, Last BIGINT NOT NULL);
    DECLARE @Late TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @All TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    SET @Seqs = NULL;
    SELECT @Key = CAST(JSON_VALUE(t.value, '$.key') AS BIGINT), @Quota = CAST(JSON_VALUE(t.value, '$.quota') AS INT)
    FROM OPENJSON(@Topics) AS t WHERE CAST(t.[key] AS INT) = @Turn;
    WHILE @Most > 0 AND @Key IS NOT NULL
    BEGIN
        IF @Quota > @Most SET @Quota = @Most;
        IF @Quota < 0 SET @Quota = 0;
        DELETE FROM @Picked;
        DELETE FROM @Heads;
        DELETE FROM @Held;
        DELETE FROM @Gaps;
        DELETE FROM @Whole;
        DELETE FROM @Taken;
        DELETE FROM @Runs;
        DELETE FROM @Late;

        IF @Workers IS NULL
        BEGIN
            INSERT INTO @Picked (StreamId, RunLast)
            SELECT TOP (@Quota) StreamId, RunLast
            FROM [dbo].[Outbox_Stream] WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
            WHERE Status = 0 AND TopicKey = @Key AND NextAttemptAt <= @Now
            ORDER BY NextAttemptAt, StreamId
            OPTION (MAXDOP 1);
            SET @Streams = @@ROWCOUNT;
        END
        ELSE
        BEGIN
            DELETE FROM @Ready;
            SET @Looked = CASE WHEN @Quota * @Workers > 1000 THEN 1000 ELSE @Quota * @Workers END;

            INSERT INTO @Ready (StreamId)
            SELECT r.StreamId
            FROM (SELECT TOP (@Looked) StreamId, NextAttemptAt
                  FROM [dbo].[Outbox_Stream] WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK)
                  WHERE Status = 0 AND TopicKey = @Key AND NextAttemptAt <= @Now
                  ORDER BY NextAttemptAt, StreamId) AS r
            ORDER BY CASE WHEN r.NextAttemptAt > @Patient AND ABS(r.StreamId % 10000) NOT BETWEEN @Low AND @High THEN 1 ELSE 0 END, r.NextAttemptAt, r.StreamId
            OPTION (MAXDOP 1);

            INSERT INTO @Picked (StreamId, RunLast)
            SELECT TOP (@Quota) t.StreamId, t.RunLast
            FROM @Ready AS r INNER JOIN [dbo].[Outbox_Stream] AS t WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON t.StreamId = r.StreamId
            WHERE t.Status = 0 AND t.NextAttemptAt <= @Now
            ORDER BY r.Turn
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @Streams = @@ROWCOUNT;
        END

        IF @Streams > 0
        BEGIN
            SET @Depth = (@Quota + @Streams - 1) / @Streams;
            IF @Depth > @Run SET @Depth = @Run;

            INSERT INTO @Heads (Seq, StreamId, Turn, Place)
            SELECT q.Seq, p.StreamId, p.Turn, q.Place
            FROM @Picked AS p
            CROSS APPLY (SELECT TOP (@Depth) n.Seq, ROW_NUMBER() OVER (ORDER BY n.Seq) AS Place
                         FROM [dbo].[Outbox_Queue] AS n WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE n.StreamId = p.StreamId ORDER BY n.Seq) AS q
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            INSERT INTO @Held (Seq, Size)
            SELECT s.Seq, s.Size
            FROM @Heads AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = h.Seq
            WHERE s.Status = 5 AND s.NextAttemptAt <= @Now
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            INSERT INTO @Gaps (Turn, Place)
            SELECT h.Turn, MIN(h.Place) FROM @Heads AS h WHERE NOT EXISTS (SELECT 1 FROM @Held AS l WHERE l.Seq = h.Seq) GROUP BY h.Turn;

            INSERT INTO @Whole (Seq, StreamId, Turn, Place, Size)
            SELECT h.Seq, h.StreamId, h.Turn, h.Place, l.Size
            FROM @Heads AS h INNER JOIN @Held AS l ON l.Seq = h.Seq
            WHERE NOT EXISTS (SELECT 1 FROM @Gaps AS g WHERE g.Turn = h.Turn AND g.Place < h.Place);

            INSERT INTO @Taken (Seq, StreamId, Size)
            SELECT f.Seq, f.StreamId, f.Size
            FROM (SELECT w.Seq, w.StreamId, w.Size, SUM(w.Size) OVER (ORDER BY w.Place, w.Turn ROWS UNBOUNDED PRECEDING) AS Total,
                         ROW_NUMBER() OVER (ORDER BY w.Place, w.Turn) AS Nth FROM @Whole AS w) AS f
            WHERE f.Nth <= @Quota AND (f.Total <= @Room OR (f.Nth = 1 AND @Larger = 1));
            SET @Count = @@ROWCOUNT;

            INSERT INTO @Late (StreamId)
            SELECT p.StreamId FROM @Picked AS p WHERE NOT EXISTS (SELECT 1 FROM @Whole AS w WHERE w.Turn = p.Turn);
            IF @@ROWCOUNT > 0
            BEGIN
                SELECT @Behind = N'[' + STRING_AGG(CAST(StreamId AS NVARCHAR(MAX)), N',') + N']' FROM @Late;
                EXEC [dbo].[Outbox_Stream_Free] @Streams = @Behind;
                UPDATE t
                SET NextAttemptAt = DATEADD(MILLISECOND, 50, @Now)
                FROM @Late AS l INNER JOIN [dbo].[Outbox_Stream] AS t WITH (ROWLOCK, FORCESEEK) ON t.StreamId = l.StreamId
                WHERE t.Status = 0 AND t.NextAttemptAt < DATEADD(MILLISECOND, 50, @Now)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            END

            IF @Count > 0
            BEGIN
                UPDATE s
                SET Status = 1, OwnerToken = @Owner
                FROM @Taken AS k INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = k.Seq
                WHERE s.Status = 5
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
                -- Never if UPDLOCK is honoured.
                IF @@ROWCOUNT <> @Count
                    THROW 51205, 'a run was lost while it was claimed; try again', 1;

                INSERT INTO @Runs (StreamId, Last) SELECT StreamId, MAX(Seq) FROM @Taken GROUP BY StreamId;
                SET @Streams = @@ROWCOUNT;

                UPDATE t
                SET Status = 1, OwnerToken = @Owner, RunLast = CASE WHEN t.RunLast > r.Last THEN t.RunLast ELSE r.Last END
                FROM @Runs AS r INNER JOIN [dbo].[Outbox_Stream] AS t WITH (ROWLOCK, FORCESEEK) ON t.StreamId = r.StreamId
                WHERE t.Status = 0
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
                IF @@ROWCOUNT <> @Streams
                    THROW 51205, 'a stream was lost while it was claimed; try again', 1;

                INSERT INTO @All (Seq) SELECT Seq FROM @Taken;
                SET @Most = @Most - @Count;
                SELECT @Room = @Room - SUM(Size) FROM @Taken;
                SET @Larger = 0;
            END
        END

        SET @Turn = @Turn + 1;
        SET @Key = NULL;
        SELECT @Key = CAST(JSON_VALUE(t.value, '$.key') AS BIGINT), @Quota = CAST(JSON_VALUE(t.value, '$.quota') AS INT)
        FROM OPENJSON(@Topics) AS t WHERE CAST(t.[key] AS INT) = @Turn;
    END

    SELECT @Seqs = N'[' + STRING_AGG(CAST(Seq AS NVARCHAR(MAX)), N',') + N']' FROM @All;
END
GO
