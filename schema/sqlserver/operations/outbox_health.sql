-- What tells whether the outbox is being served: the database's clock, leases that run and that have expired, dead letters, and what
-- waits for a position in the log. Counts end at counted. A lease stays for a while after its messages have ended: of the expired
-- ones, the oldest looked are counted only if they still hold a message or a stream. Rows that others have locked are left out.
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
    DECLARE @Looked INT = COALESCE(CAST(JSON_VALUE(@Arg, '$.looked') AS INT), 0);
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Begin DATETIME2(3) = '0001-01-01';
    DECLARE @Leases BIGINT, @Expired BIGINT, @ExpiredAt DATETIME2(3), @Failed BIGINT, @OldestFailed DATETIME2(3), @NewestFailed DATETIME2(3);
    DECLARE @Due TABLE (Place INT IDENTITY(1, 1) NOT NULL PRIMARY KEY, OwnerToken UNIQUEIDENTIFIER NOT NULL, LockedUntil DATETIME2(3) NOT NULL);
    DECLARE @Listed TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, Seqs NVARCHAR(MAX) NOT NULL, Streams NVARCHAR(MAX) NULL);
    DECLARE @Message TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL, Seq BIGINT NOT NULL, PRIMARY KEY (OwnerToken, Seq));
    DECLARE @Stream TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL, StreamId BIGINT NOT NULL, PRIMARY KEY (OwnerToken, StreamId));
    DECLARE @Holding TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Unlogged BIGINT, @OldestSeq BIGINT, @OldestUnlogged DATETIME2(3), @Position BIGINT = 0, @LoggedAt DATETIME2(3);

    SELECT @Leases = COUNT(*)
    FROM (SELECT TOP (@Counted) l.OwnerToken FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
          WHERE l.LockedUntil > @Now ORDER BY l.LockedUntil) AS c
    OPTION (MAXDOP 1);
    INSERT INTO @Due (OwnerToken, LockedUntil)
    SELECT TOP (@Counted) l.OwnerToken, l.LockedUntil FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE l.LockedUntil <= @Now
    ORDER BY l.LockedUntil
    OPTION (MAXDOP 1);
    IF @@ROWCOUNT > 0 AND @Looked > 0
    BEGIN
        INSERT INTO @Listed (OwnerToken, Seqs, Streams)
        SELECT l.OwnerToken, l.Seqs, l.Streams
        FROM @Due AS d INNER JOIN [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON l.OwnerToken = d.OwnerToken
        WHERE d.Place <= @Looked
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Message (OwnerToken, Seq)
        SELECT DISTINCT f.OwnerToken, CAST(i.value AS BIGINT) FROM @Listed AS f CROSS APPLY OPENJSON(f.Seqs) AS i;

        INSERT INTO @Holding (OwnerToken)
        SELECT DISTINCT m.OwnerToken
        FROM @Message AS m INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = m.Seq
        WHERE s.OwnerToken = m.OwnerToken
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Stream (OwnerToken, StreamId)
        SELECT DISTINCT f.OwnerToken, CAST(i.value AS BIGINT) FROM @Listed AS f CROSS APPLY OPENJSON(f.Streams) AS i
        WHERE NOT EXISTS (SELECT 1 FROM @Holding AS h WHERE h.OwnerToken = f.OwnerToken);

        INSERT INTO @Holding (OwnerToken)
        SELECT DISTINCT r.OwnerToken
        FROM @Stream AS r INNER JOIN [dbo].[Outbox_Stream] AS t WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON t.StreamId = r.StreamId
        WHERE t.OwnerToken = r.OwnerToken
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    END
    SELECT @Expired = COUNT(*), @ExpiredAt = MIN(d.LockedUntil)
    FROM @Due AS d
    WHERE d.Place > @Looked OR EXISTS (SELECT 1 FROM @Holding AS h WHERE h.OwnerToken = d.OwnerToken);

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
    -- The last committed position. The counter is read only if the log is empty, because a sequencer may have moved it without
    -- committing yet.
    SELECT TOP (1) @Position = g.Position, @LoggedAt = g.LoggedAt
    FROM [dbo].[Outbox_Log] AS g WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE g.Position > 0
    ORDER BY g.Position DESC
    OPTION (MAXDOP 1);
    IF @LoggedAt IS NULL
        SELECT @Position = c.Position FROM [dbo].[Outbox_Log_Counter] AS c WITH (NOLOCK, FORCESEEK)
        WHERE c.Id = 1
        OPTION (MAXDOP 1);

    SELECT DATEDIFF_BIG(MILLISECOND, @Epoch, @Now), @Leases, @Expired, DATEDIFF_BIG(MILLISECOND, @Epoch, @ExpiredAt),
           @Failed, DATEDIFF_BIG(MILLISECOND, @Epoch, @OldestFailed), DATEDIFF_BIG(MILLISECOND, @Epoch, @NewestFailed),
           @Unlogged, DATEDIFF_BIG(MILLISECOND, @Epoch, @OldestUnlogged), @Position, DATEDIFF_BIG(MILLISECOND, @Epoch, @LoggedAt);
END
GO
