-- Deletes up to limit messages that are no longer needed, with contents, states and attempts, and returns how many, and
-- where to continue: the after of the next call, or 0 at the end. In small batches that skip locked rows, so that nothing
-- waits for it. With seqs: those of the list whose states were deleted on acknowledgement. With ids: those of the list that
-- had failed until then. With status 3: those that failed longer ago than the given age, but not longer than within_ms if
-- that is given, the oldest first; after is when the last of them had failed, and the end is where there are none. Otherwise
-- those done before that, or without a state, in order of publishing, up to the first that was published later than that.
-- Messages that joins or the log need (Outbox_Kept) are kept; only those with flags can be among them. So are messages still
-- in the queue of their stream, which they leave when the run ends or the stream is resumed.
-- Messages are found without locks, which would otherwise stay on everything that is kept, and thousands of locks escalate
-- to one of the table. That search may wait for a row, as it must if a delete is not committed; after its first lock it
-- waits for nobody. A message moves from Outbox_Log_Pending to Outbox_Log: reading the one before the other never misses it
-- in both.
IF OBJECT_ID(N'[dbo].[Outbox_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Status TINYINT = CAST(JSON_VALUE(@Arg, '$.status') AS TINYINT);
    DECLARE @AgeMs BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT), 0);
    DECLARE @After BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT), 0);
    DECLARE @Seqs NVARCHAR(MAX) = JSON_QUERY(@Arg, '$.seqs');
    DECLARE @Ids NVARCHAR(MAX) = JSON_QUERY(@Arg, '$.ids');
    DECLARE @UntilMs BIGINT = CAST(JSON_VALUE(@Arg, '$.until') AS BIGINT);
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), @Now));
    DECLARE @WithinMs BIGINT = CAST(JSON_VALUE(@Arg, '$.within_ms') AS BIGINT);
    DECLARE @Since DATETIME2(3) = COALESCE(DATEADD(MILLISECOND, -(@WithinMs % 86400000), DATEADD(DAY, -(@WithinMs / 86400000), @Now)), CAST('0001-01-01' AS DATETIME2(3)));
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @AfterAt DATETIME2(3);
    DECLARE @Next BIGINT = 0, @Young BIGINT, @FirstAt DATETIME2(3), @Count INT = 0;
    DECLARE @Deleted NVARCHAR(MAX);
    IF @Ids IS NOT NULL
        SET @Before = DATEADD(MILLISECOND, @UntilMs % 1000, DATEADD(SECOND, @UntilMs / 1000 % 86400, DATEADD(DAY, @UntilMs / 86400000, CAST('1970-01-01' AS DATETIME2(3)))));
    DECLARE @Wanted TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Named TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Looked TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, CreatedAt DATETIME2(3) NOT NULL);
    DECLARE @Old TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, ProcessedAt DATETIME2(3) NULL, Flags TINYINT NULL); -- NULL: no state
    DECLARE @Spared TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Flags TINYINT NOT NULL);
    DECLARE @Gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    IF @Seqs IS NOT NULL
        INSERT INTO @Old (Seq, MessageId, Flags)
        SELECT DISTINCT o.Seq, o.MessageId, CAST(NULL AS TINYINT)
        FROM OPENJSON(@Seqs) AS i INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON o.Seq = CAST(i.value AS BIGINT)
        WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.Seq = o.Seq)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    ELSE IF @Ids IS NOT NULL
    BEGIN
        INSERT INTO @Wanted (MessageId) SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Ids) AS i;

        INSERT INTO @Named (Seq, MessageId)
        SELECT o.Seq, w.MessageId
        FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON o.MessageId = w.MessageId
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Old (Seq, MessageId, Flags)
        SELECT n.Seq, n.MessageId, s.Flags
        FROM @Named AS n INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = n.Seq
        WHERE s.Status = 3 AND s.ProcessedAt <= @Before
          AND (s.StreamId IS NULL OR NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Queue] AS q WITH (FORCESEEK) WHERE q.StreamId = s.StreamId AND q.Seq = s.Seq))
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    END
    ELSE IF @Status = 3
    BEGIN
        -- To the second, which no server rounds up.
        SET @AfterAt = DATEADD(SECOND, @After / 1000 % 86400, DATEADD(DAY, @After / 86400000, @Epoch));
        IF @AfterAt > @Since SET @Since = @AfterAt;

        INSERT INTO @Old (Seq, MessageId, Flags, ProcessedAt)
        SELECT TOP (@Limit) s.Seq, o.MessageId, s.Flags, s.ProcessedAt
        FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = s.Seq
        OUTER APPLY (SELECT TOP (1) g.MessageId FROM [dbo].[Outbox_Log_Pending] AS g WITH (FORCESEEK) WHERE s.Flags > 0 AND g.MessageId = o.MessageId) AS pending
        OUTER APPLY (SELECT TOP (1) k.MessageId FROM [dbo].[Outbox_Kept] AS k WHERE s.Flags > 0 AND k.MessageId = o.MessageId) AS kept
        WHERE s.Status = 3 AND s.ProcessedAt >= @Since AND s.ProcessedAt <= @Before
          AND (s.StreamId IS NULL OR NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Queue] AS q WITH (FORCESEEK) WHERE q.StreamId = s.StreamId AND q.Seq = s.Seq))
          AND pending.MessageId IS NULL AND kept.MessageId IS NULL
        ORDER BY s.ProcessedAt, s.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT @Next = COALESCE(DATEDIFF_BIG(MILLISECOND, @Epoch, MAX(ProcessedAt)), 0) FROM @Old;
    END
    ELSE
    BEGIN
        SELECT TOP (1) @FirstAt = o.CreatedAt
        FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE o.Seq > @After
        ORDER BY o.Seq
        OPTION (MAXDOP 1);

        IF @FirstAt <= @Before
        BEGIN
            INSERT INTO @Looked (Seq, MessageId, CreatedAt)
            SELECT TOP (@Limit) o.Seq, o.MessageId, o.CreatedAt
            FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
            WHERE o.Seq > @After
            ORDER BY o.Seq
            OPTION (MAXDOP 1);
            SET @Count = @@ROWCOUNT;
        END

        SELECT @Young = MIN(Seq) FROM @Looked WHERE CreatedAt > @Before;
        IF @Young IS NULL AND @Count = @Limit SELECT @Next = MAX(Seq) FROM @Looked;

        INSERT INTO @Old (Seq, MessageId, Flags)
        SELECT l.Seq, l.MessageId, s.Flags
        FROM @Looked AS l INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = l.Seq
        WHERE (@Young IS NULL OR l.Seq < @Young) AND s.Status = 2 AND s.ProcessedAt <= @Before
          AND (s.StreamId IS NULL OR NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Queue] AS q WITH (FORCESEEK) WHERE q.StreamId = s.StreamId AND q.Seq = s.Seq))
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Old (Seq, MessageId, Flags)
        SELECT l.Seq, l.MessageId, NULL
        FROM @Looked AS l
        WHERE (@Young IS NULL OR l.Seq < @Young)
          AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) WHERE s.Seq = l.Seq)
          AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.Seq = l.Seq)
          AND NOT EXISTS (SELECT 1 FROM @Old AS d WHERE d.Seq = l.Seq) -- another may have deleted the state since
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    END

    INSERT INTO @Spared (Seq)
    SELECT o.Seq FROM @Old AS o
    WHERE (o.Flags IS NULL OR o.Flags > 0)
      AND EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Pending] AS p WITH (FORCESEEK) WHERE p.MessageId = o.MessageId)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Spared (Seq)
    SELECT o.Seq
    FROM @Old AS o
    CROSS APPLY (SELECT TOP (1) k.MessageId FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = o.MessageId) AS kept
    WHERE (o.Flags IS NULL OR o.Flags > 0) AND NOT EXISTS (SELECT 1 FROM @Spared AS x WHERE x.Seq = o.Seq)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    DELETE FROM @Old WHERE Seq IN (SELECT x.Seq FROM @Spared AS x);

    BEGIN TRY
        BEGIN TRANSACTION;

        -- A message may have been requeued since it was found.
        INSERT INTO @Held (Seq, Flags)
        SELECT s.Seq, s.Flags
        FROM @Old AS o INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = o.Seq
        WHERE s.Status = @Status AND s.ProcessedAt <= @Before AND s.Flags = o.Flags
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        -- Or have become a step of another join. Attaching locks the state; and if there is a flag 1, there are joins.
        IF EXISTS (SELECT 1 FROM @Held WHERE Flags & 1 = 1)
        BEGIN
            DELETE FROM @Spared;
            INSERT INTO @Spared (Seq)
            SELECT DISTINCT h.Seq
            FROM @Held AS h
            INNER JOIN @Old AS o ON o.Seq = h.Seq
            INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (NOLOCK, FORCESEEK) ON m.OutboxMessageId = o.MessageId
            WHERE h.Flags & 1 = 1 AND m.CreatedUtc >= @Now
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            DELETE FROM @Held WHERE Seq IN (SELECT x.Seq FROM @Spared AS x);
        END

        DELETE s
        FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK) ON s.Seq = h.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Gone (Seq)
        SELECT o.Seq FROM @Old AS o WHERE o.Flags IS NULL OR EXISTS (SELECT 1 FROM @Held AS h WHERE h.Seq = o.Seq);

        SELECT @Deleted = N'[' + STRING_AGG(CAST(Seq AS NVARCHAR(MAX)), N',') + N']' FROM @Gone;
        EXEC [dbo].[Outbox_Attempt_Purge] @Seqs = @Deleted;

        DELETE o
        FROM @Gone AS g INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = g.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Count = @@ROWCOUNT;

        SELECT CAST(@Count AS BIGINT), @Next;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
