-- What tells whether the outbox is being served: the database's clock, leases that run and that have expired, dead letters, and what
-- waits for a position in the log. Counts end at counted. Rows that others have locked are left out.
IF OBJECT_ID(N'[dbo].[Outbox_Health]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Health] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Health]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Counted INT = CAST(JSON_VALUE(@Arg, '$.counted') AS INT);
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Begin DATETIME2(3) = '0001-01-01';
    DECLARE @Leases BIGINT, @Expired BIGINT, @ExpiredAt DATETIME2(3), @Failed BIGINT, @OldestFailed DATETIME2(3), @NewestFailed DATETIME2(3);
    DECLARE @Unlogged BIGINT, @OldestSeq BIGINT, @OldestUnlogged DATETIME2(3), @Position BIGINT = 0, @LoggedAt DATETIME2(3);

    SELECT @Leases = COUNT(*)
    FROM (SELECT TOP (@Counted) l.OwnerToken FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
          WHERE l.LockedUntil > @Now ORDER BY l.LockedUntil) AS c
    OPTION (MAXDOP 1);
    SELECT @Expired = COUNT(*), @ExpiredAt = MIN(c.LockedUntil)
    FROM (SELECT TOP (@Counted) l.LockedUntil FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
          WHERE l.LockedUntil <= @Now ORDER BY l.LockedUntil) AS c
    OPTION (MAXDOP 1);

    SELECT @Failed = COUNT(*), @OldestFailed = MIN(c.ProcessedAt)
    FROM (SELECT TOP (@Counted) s.ProcessedAt FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
          WHERE s.Status = 3 AND s.ProcessedAt > @Begin ORDER BY s.ProcessedAt) AS c
    OPTION (MAXDOP 1);
    SELECT TOP (1) @NewestFailed = s.ProcessedAt
    FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE s.Status = 3 AND s.ProcessedAt > @Begin
    ORDER BY s.ProcessedAt DESC
    OPTION (MAXDOP 1);

    SELECT @Unlogged = COUNT(*), @OldestSeq = MIN(c.Seq)
    FROM (SELECT TOP (@Counted) p.Seq FROM [dbo].[Outbox_Log_Pending] AS p WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
          WHERE p.Seq > 0 ORDER BY p.Seq) AS c
    OPTION (MAXDOP 1);
    SELECT @OldestUnlogged = o.CreatedAt FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE o.Seq = @OldestSeq
    OPTION (MAXDOP 1);
    SELECT @Position = c.Position FROM [dbo].[Outbox_Log_Counter] AS c WITH (NOLOCK, FORCESEEK)
    WHERE c.Id = 1
    OPTION (MAXDOP 1);
    SELECT @LoggedAt = g.LoggedAt FROM [dbo].[Outbox_Log] AS g WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE g.Position = @Position
    OPTION (MAXDOP 1);

    SELECT DATEDIFF_BIG(MILLISECOND, @Epoch, @Now), @Leases, @Expired, DATEDIFF_BIG(MILLISECOND, @Epoch, @ExpiredAt),
           @Failed, DATEDIFF_BIG(MILLISECOND, @Epoch, @OldestFailed), DATEDIFF_BIG(MILLISECOND, @Epoch, @NewestFailed),
           @Unlogged, DATEDIFF_BIG(MILLISECOND, @Epoch, @OldestUnlogged), @Position, DATEDIFF_BIG(MILLISECOND, @Epoch, @LoggedAt);
END
GO
