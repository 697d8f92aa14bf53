-- Gives back what expired leases hold, oldest first, which counts an attempt, until at least @Most messages have been looked
-- at; returns how many came back and how many leases ended. Each message is due again after a random time up to its wait, so
-- that one that kills its process does not take the same others with it each time. Of a run of a stream, only the first
-- message in progress has spent an attempt; a stream that is locked, or of which a message is locked, keeps the lease. Part
-- of its caller's own transaction, at READ COMMITTED. It waits for nobody: a message that another transaction has locked
-- keeps its lease, which is looked at again. A lease ends when it holds nothing of what it lists. A row that cannot be seen
-- may have an uncommitted delete, and would come back without a lease: NOWAIT tells the two apart.
IF OBJECT_ID(N'[dbo].[Outbox_Give_Back]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Give_Back] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Give_Back]
    @Most INT,
    @Waits NVARCHAR(MAX),
    @Messages INT OUTPUT,
    @Leases INT OUTPUT
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Streams NVARCHAR(MAX);
    DECLARE @LastWait INT, @Gone INT, @Locked BIT = 0;
    DECLARE @Wait TABLE (Retry INT NOT NULL PRIMARY KEY, Ms BIGINT NOT NULL);
    DECLARE @Late TABLE (Place INT IDENTITY(1, 1) NOT NULL PRIMARY KEY, OwnerToken UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Expired TABLE (
        Place INT NOT NULL PRIMARY KEY, OwnerToken UNIQUEIDENTIFIER NOT NULL, WorkerId INT NOT NULL, Seqs NVARCHAR(MAX) NOT NULL,
        Streams NVARCHAR(MAX) NULL);
    DECLARE @First TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, WorkerId INT NOT NULL, Seqs NVARCHAR(MAX) NOT NULL, Streams NVARCHAR(MAX) NULL);
    DECLARE @Listed TABLE (Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, WorkerId INT NOT NULL, PRIMARY KEY (Seq, OwnerToken));
    DECLARE @Free TABLE (
        Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, WorkerId INT NOT NULL, Held BIT NOT NULL, RetryCount INT NOT NULL,
        StreamId BIGINT NULL, Spent INT NOT NULL, PRIMARY KEY (Seq, OwnerToken));
    DECLARE @Unseen TABLE (Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, PRIMARY KEY (Seq, OwnerToken));
    DECLARE @Staying TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    SET @Messages = 0;
    SET @Leases = 0;

    -- Found in the index and locked by token: a lease that is skipped keeps no lock on its index entry. More are found than wanted,
    -- because others may have the first ones.
    INSERT INTO @Late (OwnerToken)
    SELECT TOP (@Most + 1000) OwnerToken FROM [dbo].[Outbox_Lease] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE LockedUntil < @Now
    ORDER BY LockedUntil, OwnerToken
    OPTION (MAXDOP 1);
    IF @@ROWCOUNT = 0 RETURN;

    INSERT INTO @Expired (Place, OwnerToken, WorkerId, Seqs, Streams)
    SELECT TOP (@Most) t.Place, l.OwnerToken, l.WorkerId, l.Seqs, l.Streams
    FROM @Late AS t INNER JOIN [dbo].[Outbox_Lease] AS l WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON l.OwnerToken = t.OwnerToken
    WHERE l.LockedUntil < @Now
    ORDER BY t.Place
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    IF @@ROWCOUNT = 0 RETURN;

    INSERT INTO @Wait (Retry, Ms) SELECT CAST(w.[key] AS INT), CAST(w.value AS BIGINT) FROM OPENJSON(@Waits) AS w;
    SELECT @LastWait = MAX(Retry) FROM @Wait;

    -- A list has as many messages as commas, plus one.
    INSERT INTO @First (OwnerToken, WorkerId, Seqs, Streams)
    SELECT s.OwnerToken, s.WorkerId, s.Seqs, s.Streams
    FROM (SELECT e.OwnerToken, e.WorkerId, e.Seqs, e.Streams, e.Size, SUM(e.Size) OVER (ORDER BY e.Place ROWS UNBOUNDED PRECEDING) AS Total
          FROM (SELECT Place, OwnerToken, WorkerId, Seqs, Streams, CAST(LEN(Seqs) - LEN(REPLACE(Seqs, N',', N'')) + 1 AS BIGINT) AS Size FROM @Expired) AS e) AS s
    WHERE s.Total - s.Size < @Most;

    INSERT INTO @Listed (Seq, OwnerToken, WorkerId)
    SELECT DISTINCT CAST(i.value AS BIGINT), f.OwnerToken, f.WorkerId FROM @First AS f CROSS APPLY OPENJSON(f.Seqs) AS i;

    INSERT INTO @Free (Seq, OwnerToken, WorkerId, Held, RetryCount, StreamId, Spent)
    SELECT l.Seq, l.OwnerToken, l.WorkerId, CASE WHEN s.OwnerToken = l.OwnerToken THEN 1 ELSE 0 END, s.RetryCount, s.StreamId, 1
    FROM @Listed AS l INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = l.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    IF EXISTS (SELECT 1 FROM @Free WHERE StreamId IS NOT NULL)
        UPDATE f SET Spent = 0
        FROM @Free AS f
        WHERE f.StreamId IS NOT NULL AND EXISTS (SELECT 1 FROM @Free AS b WHERE b.StreamId = f.StreamId AND b.Held = 1 AND b.Seq < f.Seq);

    UPDATE s
    SET Status = CASE WHEN s.StreamId IS NULL THEN 0 ELSE 5 END, OwnerToken = NULL, RetryCount = s.RetryCount + f.Spent,
        NextAttemptAt = DATEADD(MILLISECOND, f.Spent * CAST(ABS(CAST(CHECKSUM(NEWID()) AS BIGINT)) % (1 + COALESCE((
            SELECT w.Ms FROM @Wait AS w WHERE w.Retry = CASE WHEN s.RetryCount < @LastWait THEN s.RetryCount ELSE @LastWait END), 0)) AS INT), @Now)
    FROM @Free AS f INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = f.Seq
    WHERE f.Held = 1 AND s.OwnerToken = f.OwnerToken
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    SET @Messages = @@ROWCOUNT;

    IF @Messages > 0
        INSERT INTO [dbo].[Outbox_Attempt] (Seq, HappenedAt, WorkerId, Attempt, Outcome, Error)
        SELECT f.Seq, @Now, f.WorkerId, f.RetryCount + 1, 4, N'the lease expired: the worker stopped or did not renew it in time'
        FROM @Free AS f WHERE f.Held = 1 AND f.Spent = 1;

    IF EXISTS (SELECT 1 FROM @Listed AS l WHERE NOT EXISTS (SELECT 1 FROM @Free AS f WHERE f.Seq = l.Seq AND f.OwnerToken = l.OwnerToken))
    BEGIN
        INSERT INTO @Staying (OwnerToken)
        SELECT DISTINCT l.OwnerToken
        FROM @Listed AS l INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = l.Seq
        WHERE NOT EXISTS (SELECT 1 FROM @Free AS f WHERE f.Seq = l.Seq AND f.OwnerToken = l.OwnerToken)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Unseen (Seq, OwnerToken)
        SELECT l.Seq, l.OwnerToken
        FROM @Listed AS l
        WHERE NOT EXISTS (SELECT 1 FROM @Free AS f WHERE f.Seq = l.Seq AND f.OwnerToken = l.OwnerToken)
          AND NOT EXISTS (SELECT 1 FROM @Staying AS y WHERE y.OwnerToken = l.OwnerToken);

        -- 1222 must not end the transaction. Only from here on, because a call that is cut off while this is OFF leaves the
        -- transaction open.
        SET XACT_ABORT OFF;
        BEGIN TRY
            SELECT @Gone = COUNT(*)
            FROM @Unseen AS u INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, NOWAIT, FORCESEEK) ON s.Seq = u.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            IF @Gone > 0 SET @Locked = 1;
        END TRY
        BEGIN CATCH
            IF ERROR_NUMBER() <> 1222 OR XACT_STATE() <> 1 THROW;
            SET @Locked = 1;
        END CATCH
        SET XACT_ABORT ON;
        IF @Locked = 1 INSERT INTO @Staying (OwnerToken) SELECT DISTINCT u.OwnerToken FROM @Unseen AS u;
    END

    IF EXISTS (SELECT 1 FROM @First WHERE Streams IS NOT NULL)
    BEGIN
        SELECT @Streams = N'[' + STRING_AGG(CAST(i.value AS NVARCHAR(MAX)), N',') + N']' FROM @First AS f CROSS APPLY OPENJSON(f.Streams) AS i;
        EXEC [dbo].[Outbox_Stream_Free] @Streams = @Streams;

        INSERT INTO @Staying (OwnerToken)
        SELECT DISTINCT f.OwnerToken
        FROM @First AS f
        CROSS APPLY OPENJSON(f.Streams) AS i
        INNER JOIN [dbo].[Outbox_Stream] AS t WITH (NOLOCK, FORCESEEK) ON t.StreamId = CAST(i.value AS BIGINT)
        WHERE t.OwnerToken = f.OwnerToken AND NOT EXISTS (SELECT 1 FROM @Staying AS y WHERE y.OwnerToken = f.OwnerToken)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    END

    DELETE l
    FROM @First AS f INNER JOIN [dbo].[Outbox_Lease] AS l WITH (ROWLOCK, FORCESEEK) ON l.OwnerToken = f.OwnerToken
    WHERE NOT EXISTS (SELECT 1 FROM @Staying AS y WHERE y.OwnerToken = f.OwnerToken)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    SET @Leases = @@ROWCOUNT;
END
GO
