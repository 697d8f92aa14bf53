-- Gives back up to limit messages whose lease has expired, which counts an attempt; answers how many. Each is due again
-- after a random time up to its wait, so that one that ends its process does not take the same others with it each time.
-- Ended messages hold no lease and are never touched.
IF OBJECT_ID(N'[dbo].[Outbox_Reap]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Reap] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Reap]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Waits TABLE (Retry INT NOT NULL PRIMARY KEY, Ms BIGINT NOT NULL);
    DECLARE @LastWait INT;
    DECLARE @Expired TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    INSERT INTO @Waits (Retry, Ms) SELECT CAST(w.[key] AS INT), CAST(w.value AS BIGINT) FROM OPENJSON(@Arg, '$.waits') AS w;
    SELECT @LastWait = MAX(Retry) FROM @Waits;

    INSERT INTO @Expired (Seq)
    SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE Status = 1 AND LockedUntil < @Now
    ORDER BY LockedUntil
    OPTION (MAXDOP 1);

    -- What was found may have been renewed or settled meanwhile.
    UPDATE o
    SET Status = 0, OwnerToken = NULL, LockedUntil = NULL, RetryCount = o.RetryCount + 1,
        NextAttemptAt = DATEADD(MILLISECOND, CAST(ABS(CAST(CHECKSUM(NEWID()) AS BIGINT)) % (1 + COALESCE((
            SELECT w.Ms FROM @Waits AS w WHERE w.Retry = CASE WHEN o.RetryCount < @LastWait THEN o.RetryCount ELSE @LastWait END), 0)) AS INT), @Now),
        LastError = N'the lease expired: the worker stopped or did not renew it in time'
    FROM @Expired AS e INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, FORCESEEK) ON o.Seq = e.Seq
    WHERE o.Status = 1 AND o.LockedUntil < @Now
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT);
END
GO
