-- Takes up to limit ready messages of the listed topics under a lease, and first gives back a bounded number of
-- expired leases, which counts an attempt; a row with Seq 0 tells their number in RetryCount. Each of those is due again
-- after a random time up to its wait, so that one that ends its process does not take the same others with it each time.
-- Topics are tried in the order given, each up to its quota, until the next message does not fit in what is left of bytes,
-- payload and headers; with first, the very first may be larger.
-- A topic with from_ms begins there: what became due before is passed over, and so are the ghosts of what was claimed.
-- READ COMMITTED, because READPAST is refused in other levels and a pooled connection may carry one. The outer test of
-- Status keeps a row from being taken twice even where hints are ignored. Rows are picked first and written to by their keys,
-- and both plans are pinned: a claim then costs the same whatever waits behind it, and takes no more than it has picked.
IF OBJECT_ID(N'[dbo].[Outbox_Claim]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Claim] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Claim]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Owner UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.owner');
    DECLARE @LeaseMs INT = CAST(JSON_VALUE(@Arg, '$.lease_ms') AS INT);
    DECLARE @Left INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @GiveBack INT = CAST(JSON_VALUE(@Arg, '$.give_back') AS INT);
    DECLARE @GivenBack INT = 0;
    DECLARE @Turn INT = 0;
    DECLARE @Topic NVARCHAR(255);
    DECLARE @Take INT;
    DECLARE @Since DATETIME2(3);
    DECLARE @Topics TABLE (Turn INT NOT NULL PRIMARY KEY, Topic NVARCHAR(255) NOT NULL, Quota INT NOT NULL, Since DATETIME2(3) NOT NULL);
    DECLARE @Waits TABLE (Retry INT NOT NULL PRIMARY KEY, Ms BIGINT NOT NULL);
    DECLARE @LastWait INT;
    DECLARE @Expired TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Room BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.bytes') AS BIGINT), 9223372036854775807);
    DECLARE @Larger BIT = CASE JSON_VALUE(@Arg, '$.first') WHEN N'false' THEN 0 ELSE 1 END;
    DECLARE @TooLarge INT;
    DECLARE @Picked TABLE (Place INT IDENTITY(1, 1) NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, Size BIGINT NOT NULL);
    DECLARE @Claimed TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    INSERT INTO @Topics (Turn, Topic, Quota, Since)
    SELECT CAST(t.[key] AS INT), JSON_VALUE(t.value, '$.topic'), CAST(JSON_VALUE(t.value, '$.quota') AS INT), COALESCE(
        DATEADD(MILLISECOND, CAST(CAST(JSON_VALUE(t.value, '$.from_ms') AS BIGINT) % 86400000 AS INT),
            DATEADD(DAY, CAST(CAST(JSON_VALUE(t.value, '$.from_ms') AS BIGINT) / 86400000 AS INT), CAST('1970-01-01' AS DATETIME2(3)))),
        CAST('0001-01-01' AS DATETIME2(3)))
    FROM OPENJSON(@Arg, '$.topics') AS t;

    BEGIN TRY
        BEGIN TRANSACTION;

        IF @GiveBack > 0
        BEGIN
            INSERT INTO @Waits (Retry, Ms) SELECT CAST(w.[key] AS INT), CAST(w.value AS BIGINT) FROM OPENJSON(@Arg, '$.waits') AS w;
            SELECT @LastWait = MAX(Retry) FROM @Waits;

            INSERT INTO @Expired (Seq)
            SELECT TOP (@GiveBack) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            WHERE Status = 1 AND LockedUntil < @Now
            ORDER BY LockedUntil
            OPTION (MAXDOP 1);

            UPDATE o
            SET Status = 0, OwnerToken = NULL, LockedUntil = NULL, RetryCount = o.RetryCount + 1,
                NextAttemptAt = DATEADD(MILLISECOND, CAST(ABS(CAST(CHECKSUM(NEWID()) AS BIGINT)) % (1 + COALESCE((
                    SELECT w.Ms FROM @Waits AS w WHERE w.Retry = CASE WHEN o.RetryCount < @LastWait THEN o.RetryCount ELSE @LastWait END), 0)) AS INT), @Now),
                LastError = N'the lease expired: the worker stopped or did not renew it in time'
            FROM @Expired AS e INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, FORCESEEK) ON o.Seq = e.Seq
            WHERE o.Status = 1 AND o.LockedUntil < @Now
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @GivenBack = @@ROWCOUNT;
        END

        SELECT @Topic = Topic, @Take = Quota, @Since = Since FROM @Topics WHERE Turn = @Turn;
        WHILE @Left > 0 AND @Topic IS NOT NULL
        BEGIN
            IF @Take > @Left SET @Take = @Left;

            DELETE FROM @Picked;
            INSERT INTO @Picked (Seq, Size)
            SELECT TOP (@Take) Seq, DATALENGTH(Payload) + COALESCE(DATALENGTH(Headers), 0)
            FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            WHERE Status = 0 AND Topic = @Topic AND NextAttemptAt <= @Now AND NextAttemptAt >= @Since
            ORDER BY NextAttemptAt, Seq
            OPTION (MAXDOP 1);

            SET @TooLarge = NULL;
            SELECT @TooLarge = MIN(s.Place)
            FROM (SELECT Place, SUM(Size) OVER (ORDER BY Place ROWS UNBOUNDED PRECEDING) AS Total,
                         ROW_NUMBER() OVER (ORDER BY Place) AS Nth FROM @Picked) AS s
            WHERE s.Total > @Room AND (s.Nth > 1 OR @Larger = 0);
            IF @TooLarge IS NOT NULL DELETE FROM @Picked WHERE Place >= @TooLarge;

            UPDATE o
            SET Status = 1, OwnerToken = @Owner, LockedUntil = DATEADD(MILLISECOND, @LeaseMs, SYSUTCDATETIME())
            FROM @Picked AS p INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, FORCESEEK) ON o.Seq = p.Seq
            WHERE o.Status = 0
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            SET @Left = CASE WHEN @TooLarge IS NULL THEN @Left - @@ROWCOUNT ELSE 0 END;
            INSERT INTO @Claimed (Seq) SELECT Seq FROM @Picked;
            SELECT @Room = @Room - SUM(Size), @Larger = 0 FROM @Picked HAVING COUNT(*) > 0;
            SET @Turn = @Turn + 1;
            SET @Topic = NULL;
            SELECT @Topic = Topic, @Take = Quota, @Since = Since FROM @Topics WHERE Turn = @Turn;
        END

        SELECT o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
               DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), o.CreatedAt),
               DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), o.DueTimeUtc),
               o.RetryCount
        FROM @Claimed AS c INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = c.Seq
        WHERE o.Status = 1 AND o.OwnerToken = @Owner
        UNION ALL
        SELECT 0, '00000000-0000-0000-0000-000000000000', N'', N'', CAST(0x AS VARBINARY(MAX)), NULL, NULL, NULL, 0, NULL, @GivenBack
        WHERE @GivenBack > 0
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
