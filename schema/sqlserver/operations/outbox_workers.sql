-- Lists workers, those that came last first, with the number of claims and messages that each holds, and until when. Of each
-- claim, what it took is counted, whether it has ended since or not. A worker may have several numbers, and so several rows.
IF OBJECT_ID(N'[dbo].[Outbox_Workers]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Workers] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Workers]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Found TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Claims TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, WorkerId INT NOT NULL, LockedUntil DATETIME2(3) NOT NULL, Messages BIGINT NOT NULL);
    DECLARE @Workers TABLE (WorkerId INT NOT NULL PRIMARY KEY, Name NVARCHAR(100) NOT NULL, StartedAt DATETIME2(3) NOT NULL);

    INSERT INTO @Found (OwnerToken)
    SELECT TOP (10000) l.OwnerToken
    FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE l.LockedUntil > SYSUTCDATETIME()
    ORDER BY l.LockedUntil
    OPTION (MAXDOP 1);

    INSERT INTO @Claims (OwnerToken, WorkerId, LockedUntil, Messages)
    SELECT l.OwnerToken, l.WorkerId, l.LockedUntil, (SELECT COUNT(*) FROM OPENJSON(l.Seqs) AS i)
    FROM @Found AS f INNER JOIN [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON l.OwnerToken = f.OwnerToken
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Workers (WorkerId, Name, StartedAt)
    SELECT TOP (@Limit) w.WorkerId, w.Name, w.StartedAt
    FROM [dbo].[Outbox_Worker] AS w WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE w.WorkerId > 0
    ORDER BY w.WorkerId DESC
    OPTION (MAXDOP 1);

    SELECT w.Name, DATEDIFF_BIG(MILLISECOND, @Epoch, w.StartedAt), COUNT(c.OwnerToken), COALESCE(SUM(c.Messages), 0),
           DATEDIFF_BIG(MILLISECOND, @Epoch, MAX(c.LockedUntil))
    FROM @Workers AS w LEFT JOIN @Claims AS c ON c.WorkerId = w.WorkerId
    GROUP BY w.WorkerId, w.Name, w.StartedAt;
END
GO
