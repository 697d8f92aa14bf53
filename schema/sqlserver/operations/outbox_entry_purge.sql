-- Deletes up to limit entries that ended (2 done, 3 failed) and were last seen longer ago than the given age, with their
-- messages in the queue, the oldest first; returns for each when it was last seen. The latest of these is the after of the
-- next call, which begins there. Those still needed (Outbox_Kept) are kept, and those last seen longer than within_ms ago,
-- if it is given. In small batches that skip locked entries. Entries are found without locks, which would otherwise stay on
-- everything that is skipped, such as done entries on the way to failed ones. That search waits for messages, because one
-- that is being claimed would seem to be gone; after the first lock it waits for nobody. A message is checked again under
-- its lock, because it may have been revived since.
IF OBJECT_ID(N'[dbo].[Outbox_Entry_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Entry_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Entry_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Status TINYINT = CAST(JSON_VALUE(@Arg, '$.status') AS TINYINT);
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));
    DECLARE @WithinMs BIGINT = CAST(JSON_VALUE(@Arg, '$.within_ms') AS BIGINT);
    DECLARE @Since DATETIME2(3) = COALESCE(DATEADD(MILLISECOND, -(@WithinMs % 86400000), DATEADD(DAY, -(@WithinMs / 86400000), SYSUTCDATETIME())), CAST('0001-01-01' AS DATETIME2(3)));
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @AfterMs BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT), 0);
    -- To the second, which no server rounds up.
    DECLARE @AfterAt DATETIME2(3) = DATEADD(SECOND, @AfterMs / 1000 % 86400, DATEADD(DAY, @AfterMs / 86400000, @Epoch));
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY, QueueId UNIQUEIDENTIFIER NULL, QueueSeq BIGINT NULL, Flags TINYINT NULL); -- NULL: no state
    DECLARE @Spared TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Old TABLE (Seq BIGINT NOT NULL PRIMARY KEY, LastSeenAt DATETIME2(3) NOT NULL, QueueSeq BIGINT NULL, Flags TINYINT NULL);
    DECLARE @Queued TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Flags TINYINT NULL);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Deleted NVARCHAR(MAX);
    DECLARE @Count INT;
    IF @AfterAt > @Since SET @Since = @AfterAt;

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Found (Seq, QueueId, QueueSeq, Flags)
        SELECT TOP (@Limit) e.Seq, e.QueueId, o.Seq, s.Flags
        FROM [dbo].[OutboxEntry] AS e WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        LEFT JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.MessageId = e.QueueId
        LEFT JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = o.Seq
        OUTER APPLY (SELECT TOP (1) g.MessageId FROM [dbo].[Outbox_Log_Pending] AS g WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE g.MessageId = e.QueueId) AS pending
        OUTER APPLY (SELECT TOP (1) k.MessageId FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = e.QueueId) AS kept
        WHERE e.LastSeenAt >= @Since AND e.LastSeenAt <= @Before
          AND COALESCE(s.Status, 2) = @Status AND COALESCE(s.ProcessedAt, @Before) <= @Before
          AND pending.MessageId IS NULL AND kept.MessageId IS NULL
        ORDER BY e.LastSeenAt
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        -- A message moves from Outbox_Log_Pending to Outbox_Log, and one statement may have looked into both at the wrong
        -- time.
        INSERT INTO @Spared (Seq)
        SELECT f.Seq
        FROM @Found AS f
        CROSS APPLY (SELECT TOP (1) k.MessageId FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = f.QueueId) AS kept
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        DELETE FROM @Found WHERE Seq IN (SELECT x.Seq FROM @Spared AS x);

        INSERT INTO @Old (Seq, LastSeenAt, QueueSeq, Flags)
        SELECT e.Seq, e.LastSeenAt, f.QueueSeq, f.Flags
        FROM @Found AS f INNER JOIN [dbo].[OutboxEntry] AS e WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON e.Seq = f.Seq
        WHERE e.LastSeenAt <= @Before
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Queued (Seq, Flags) SELECT QueueSeq, MAX(Flags) FROM @Old WHERE QueueSeq IS NOT NULL GROUP BY QueueSeq;

        INSERT INTO @Held (Seq)
        SELECT s.Seq
        FROM @Queued AS q INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = q.Seq
        WHERE s.Status = @Status AND s.Flags = q.Flags
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE s
        FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK) ON s.Seq = h.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Gone (Seq)
        SELECT q.Seq FROM @Queued AS q WHERE q.Flags IS NULL OR EXISTS (SELECT 1 FROM @Held AS h WHERE h.Seq = q.Seq);

        SELECT @Deleted = N'[' + STRING_AGG(CAST(Seq AS NVARCHAR(MAX)), N',') + N']' FROM @Gone;
        EXEC [dbo].[Outbox_Attempt_Purge] @Seqs = @Deleted;

        DELETE o
        FROM @Gone AS g INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = g.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE e
        FROM @Old AS d INNER JOIN [dbo].[OutboxEntry] AS e WITH (ROWLOCK, FORCESEEK) ON e.Seq = d.Seq
        WHERE d.QueueSeq IS NULL OR EXISTS (SELECT 1 FROM @Gone AS g WHERE g.Seq = d.QueueSeq)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT DATEDIFF_BIG(MILLISECOND, @Epoch, d.LastSeenAt)
        FROM @Old AS d
        WHERE d.QueueSeq IS NULL OR EXISTS (SELECT 1 FROM @Gone AS g WHERE g.Seq = d.QueueSeq);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
