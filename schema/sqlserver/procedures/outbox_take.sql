-- Takes up to limit ready messages of the listed topics that are not paused under one lease, and first gives back what
-- expired leases hold, which counts an attempt. Messages noted to be woken are made due too. Returns a JSON array of what it
-- took, or NULL, its bytes, and how many messages it gave back. Topics are tried in the order given, each up to its quota,
-- until the next message does not fit into what is left of bytes (payload and headers); with first, the very first may be
-- larger. A topic with from_ms begins there: it skips what became due before, and with it the ghost entries of claimed
-- messages. A coin decides whether messages of ordered streams or others come first, so that neither starves. The outer test
-- of Status keeps a row from being taken twice even if hints are ignored; what was taken is what has the token afterwards.
-- Rows are picked first and written to by their keys, and both plans are pinned: a claim then costs the same however long
-- the backlog, and takes no more than it has picked. Size is not in the index of ready messages, so the pick locks the row
-- itself too. Paused topics are read with NOLOCK: whoever pauses a topic again holds its row, and READPAST would take it for
-- not paused. So what is not committed counts early. Part of its caller's own transaction, at READ COMMITTED. It waits for
-- nobody.
IF OBJECT_ID(N'[dbo].[Outbox_Take]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Take] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Take]
    @Arg NVARCHAR(MAX),
    @Taken NVARCHAR(MAX) OUTPUT,
    @Bytes BIGINT OUTPUT,
    @GivenBack INT OUTPUT
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Owner UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.owner');
    DECLARE @Worker NVARCHAR(100) = JSON_VALUE(@Arg, '$.worker');
    DECLARE @LeaseMs INT = CAST(JSON_VALUE(@Arg, '$.lease_ms') AS INT);
    DECLARE @Left INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @GiveBack INT = CAST(JSON_VALUE(@Arg, '$.give_back') AS INT);
    DECLARE @Run INT = COALESCE(CAST(JSON_VALUE(@Arg, '$.run') AS INT), 32);
    DECLARE @Ordered BIT = 0, @Round INT = 0, @More BIT = 1, @Phase INT = 0, @Wanted NVARCHAR(MAX), @Runs NVARCHAR(MAX), @Streams NVARCHAR(MAX);
    DECLARE @OrderedPhase INT = CASE WHEN CHECKSUM(NEWID()) % 2 = 0 THEN 0 ELSE 2 END;
    DECLARE @InOrder TABLE (Seq BIGINT NOT NULL PRIMARY KEY, RetryCount INT NOT NULL, Stages INT NULL, Size BIGINT NOT NULL, TopicKey BIGINT NOT NULL, StreamId BIGINT NOT NULL);
    DECLARE @Share NVARCHAR(MAX) = JSON_QUERY(@Arg, '$.share');
    DECLARE @Waits NVARCHAR(MAX), @Leases INT, @WorkerId INT, @Seqs NVARCHAR(MAX);
    DECLARE @Turn INT = 0;
    DECLARE @Key BIGINT;
    DECLARE @Take INT;
    DECLARE @Since DATETIME2(3);
    DECLARE @Topics TABLE (Turn INT NOT NULL PRIMARY KEY, TopicKey BIGINT NOT NULL, Quota INT NOT NULL, Since DATETIME2(3) NOT NULL);
    DECLARE @Room BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.bytes') AS BIGINT), 9223372036854775807);
    DECLARE @Larger BIT = CASE JSON_VALUE(@Arg, '$.first') WHEN N'false' THEN 0 ELSE 1 END;
    DECLARE @TooLarge INT;
    DECLARE @Picked TABLE (Place INT IDENTITY(1, 1) NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, Size BIGINT NOT NULL, RetryCount INT NOT NULL, Stages INT NULL);
    DECLARE @Claimed TABLE (Seq BIGINT NOT NULL PRIMARY KEY, RetryCount INT NOT NULL, Stages INT NULL);
    DECLARE @Ours TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Written INT, @Lost BIT = 0;

    INSERT INTO @Topics (Turn, TopicKey, Quota, Since)
    SELECT CAST(t.[key] AS INT), CAST(JSON_VALUE(t.value, '$.key') AS BIGINT), CAST(JSON_VALUE(t.value, '$.quota') AS INT), COALESCE(
        DATEADD(MILLISECOND, CAST(CAST(JSON_VALUE(t.value, '$.from_ms') AS BIGINT) % 86400000 AS INT),
            DATEADD(DAY, CAST(CAST(JSON_VALUE(t.value, '$.from_ms') AS BIGINT) / 86400000 AS INT), CAST('1970-01-01' AS DATETIME2(3)))),
        CAST('0001-01-01' AS DATETIME2(3)))
    FROM OPENJSON(@Arg, '$.topics') AS t;

    SET @Taken = NULL;
    SET @Bytes = @Room;
    SET @GivenBack = 0;

    IF EXISTS (SELECT 1 FROM [dbo].[Outbox_Wake] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE WakeId > 0)
    BEGIN
        EXEC [dbo].[Outbox_Join_Wake];
        SET @Now = SYSUTCDATETIME(); -- what was woken is due by now
    END

    IF EXISTS (SELECT 1 FROM [dbo].[Outbox_Paused] WITH (NOLOCK, FORCESEEK) WHERE TopicKey >= CAST(-9223372036854775808 AS BIGINT))
        UPDATE t
        SET Quota = 0
        FROM @Topics AS t INNER JOIN [dbo].[Outbox_Paused] AS p WITH (NOLOCK, FORCESEEK) ON p.TopicKey = t.TopicKey
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    IF @GiveBack > 0
       AND EXISTS (SELECT 1 FROM [dbo].[Outbox_Lease] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE LockedUntil < @Now)
    BEGIN
        SET @Waits = JSON_QUERY(@Arg, '$.waits');
        EXEC [dbo].[Outbox_Give_Back] @Most = @GiveBack, @Waits = @Waits, @Messages = @GivenBack OUTPUT, @Leases = @Leases OUTPUT;
        SET @Now = SYSUTCDATETIME(); -- what has come back may be due by now
    END

    IF EXISTS (SELECT 1 FROM [dbo].[Outbox_Arrival] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE Seq > 0)
    BEGIN
        -- Rows of other topics must not hide those of these.
        SET @Take = CASE WHEN @Left > 100 THEN @Left ELSE 100 END;
        WHILE @Round < 20 AND @More = 1
        BEGIN
            EXEC [dbo].[Outbox_Stream_Route] @Most = @Take, @More = @More OUTPUT;
            SET @Round = @Round + 1;
        END
    END
    IF EXISTS (SELECT 1 FROM [dbo].[Outbox_Stream] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE Status = 0 AND TopicKey >= CAST(-9223372036854775808 AS BIGINT))
        SET @Ordered = 1;

    WHILE @Phase < 3
    BEGIN
        IF @Phase = 1
        BEGIN
            SELECT @Key = TopicKey, @Take = Quota, @Since = Since FROM @Topics WHERE Turn = @Turn;
            WHILE @Left > 0 AND @Key IS NOT NULL
            BEGIN
                IF @Take > @Left SET @Take = @Left;

                DELETE FROM @Picked;
                INSERT INTO @Picked (Seq, Size, RetryCount, Stages)
                SELECT TOP (@Take) Seq, Size, RetryCount, Stages
                FROM [dbo].[Outbox_State] WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
                WHERE Status = 0 AND TopicKey = @Key AND NextAttemptAt <= @Now AND NextAttemptAt >= @Since
                ORDER BY NextAttemptAt, Seq
                OPTION (MAXDOP 1);

                SET @TooLarge = NULL;
                SELECT @TooLarge = MIN(s.Place)
                FROM (SELECT Place, SUM(Size) OVER (ORDER BY Place ROWS UNBOUNDED PRECEDING) AS Total,
                             ROW_NUMBER() OVER (ORDER BY Place) AS Nth FROM @Picked) AS s
                WHERE s.Total > @Room AND (s.Nth > 1 OR @Larger = 0);
                IF @TooLarge IS NOT NULL DELETE FROM @Picked WHERE Place >= @TooLarge;

                UPDATE s
                SET Status = 1, OwnerToken = @Owner
                FROM @Picked AS p INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = p.Seq
                WHERE s.Status = 0
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

                SET @Written = @@ROWCOUNT;

                INSERT INTO @Claimed (Seq, RetryCount, Stages) SELECT Seq, RetryCount, Stages FROM @Picked;
                IF @@ROWCOUNT <> @Written SET @Lost = 1;
                IF @Ordered = 1 UPDATE @Topics SET Quota = Quota - @Written WHERE Turn = @Turn;
                SET @Left = CASE WHEN @TooLarge IS NULL THEN @Left - @Written ELSE 0 END;
                SELECT @Room = @Room - SUM(Size), @Larger = 0 FROM @Picked HAVING COUNT(*) > 0;
                SET @Turn = @Turn + 1;
                SET @Key = NULL;
                SELECT @Key = TopicKey, @Take = Quota, @Since = Since FROM @Topics WHERE Turn = @Turn;
            END
        END
        ELSE IF @Ordered = 1 AND @Phase = @OrderedPhase AND @Left > 0
        BEGIN
            SELECT @Wanted = N'[' + STRING_AGG(CAST(N'{"key":' + CAST(TopicKey AS NVARCHAR(20)) + N',"quota":' + CAST(Quota AS NVARCHAR(20)) + N'}' AS NVARCHAR(MAX)), N',')
                WITHIN GROUP (ORDER BY Turn) + N']' FROM @Topics;
            EXEC [dbo].[Outbox_Stream_Claim] @Owner = @Owner, @Topics = @Wanted, @Run = @Run, @Most = @Left, @Room = @Room, @Larger = @Larger, @Share = @Share, @Seqs = @Runs OUTPUT;
            IF @Runs IS NOT NULL
            BEGIN
                INSERT INTO @InOrder (Seq, RetryCount, Stages, Size, TopicKey, StreamId)
                SELECT s.Seq, s.RetryCount, s.Stages, s.Size, s.TopicKey, s.StreamId
                FROM OPENJSON(@Runs) AS i INNER JOIN [dbo].[Outbox_State] AS s WITH (FORCESEEK) ON s.Seq = CAST(i.value AS BIGINT)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
                SET @Left = @Left - @@ROWCOUNT;
                SELECT @Room = @Room - SUM(Size), @Larger = 0 FROM @InOrder HAVING COUNT(*) > 0;
                UPDATE t SET Quota = t.Quota - (SELECT COUNT(*) FROM @InOrder AS c WHERE c.TopicKey = t.TopicKey) FROM @Topics AS t;
                INSERT INTO @Claimed (Seq, RetryCount, Stages) SELECT Seq, RetryCount, Stages FROM @InOrder;
                SELECT @Streams = STRING_AGG(CAST(d.StreamId AS NVARCHAR(MAX)), N',') FROM (SELECT DISTINCT StreamId FROM @InOrder) AS d;
            END
        END
        SET @Phase = @Phase + 1;
    END

    -- Never if UPDLOCK is honoured.
    IF @Lost = 1
    BEGIN
        INSERT INTO @Ours (Seq)
        SELECT s.Seq
        FROM @Claimed AS c INNER JOIN [dbo].[Outbox_State] AS s WITH (FORCESEEK) ON s.Seq = c.Seq
        WHERE s.OwnerToken = @Owner
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        DELETE FROM @Claimed WHERE Seq NOT IN (SELECT u.Seq FROM @Ours AS u);
    END

    IF EXISTS (SELECT 1 FROM @Claimed)
    BEGIN
        EXEC [dbo].[Outbox_Worker_Number] @Worker = @Worker, @Number = @WorkerId OUTPUT;
        SELECT @Seqs = STRING_AGG(CAST(Seq AS NVARCHAR(MAX)), N',') FROM @Claimed;

        -- The caller may claim under one token twice.
        UPDATE l
        SET LockedUntil = DATEADD(MILLISECOND, @LeaseMs, SYSUTCDATETIME()), Seqs = LEFT(l.Seqs, LEN(l.Seqs) - 1) + N',' + @Seqs + N']',
            Streams = CASE WHEN @Streams IS NULL THEN l.Streams
                           WHEN l.Streams IS NULL THEN N'[' + @Streams + N']'
                           ELSE LEFT(l.Streams, LEN(l.Streams) - 1) + N',' + @Streams + N']' END
        FROM [dbo].[Outbox_Lease] AS l WITH (ROWLOCK, FORCESEEK)
        WHERE l.OwnerToken = @Owner
        OPTION (MAXDOP 1);
        IF @@ROWCOUNT = 0
            INSERT INTO [dbo].[Outbox_Lease] (OwnerToken, WorkerId, LockedUntil, Seqs, Streams)
            VALUES (@Owner, @WorkerId, DATEADD(MILLISECOND, @LeaseMs, SYSUTCDATETIME()), N'[' + @Seqs + N']', N'[' + @Streams + N']');

        SELECT @Taken = N'[' + STRING_AGG(CAST(N'{"seq":' + CAST(Seq AS NVARCHAR(20)) + N',"retries":' + CAST(RetryCount AS NVARCHAR(11))
            + COALESCE(N',"stages":' + CAST(Stages AS NVARCHAR(11)), N'') + N'}' AS NVARCHAR(MAX)), N',') + N']' FROM @Claimed;
    END
    SELECT @Bytes = @Bytes - @Room + 300 * COUNT(*) FROM @Claimed; -- the other columns have about so many bytes
END
GO
