-- Workers, those that live first, then those that were seen last, with what they hold: of the leases that run longest, and of
-- each of these the first sample messages. Rows that others have locked are left out.
IF OBJECT_ID(N'[dbo].[Outbox_Worker_List]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Worker_List] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Worker_List]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Leases INT = CAST(JSON_VALUE(@Arg, '$.leases') AS INT);
    DECLARE @Sample INT = CAST(JSON_VALUE(@Arg, '$.sample') AS INT);
    DECLARE @Found TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Lease TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, WorkerId INT NOT NULL, Seqs NVARCHAR(MAX) NOT NULL);
    DECLARE @Looked TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL, Seq BIGINT NOT NULL, WorkerId INT NOT NULL, PRIMARY KEY (OwnerToken, Seq));
    DECLARE @Message TABLE (Seq BIGINT NOT NULL PRIMARY KEY, WorkerId INT NOT NULL, StreamId BIGINT NULL);
    DECLARE @Workers TABLE (WorkerId INT NOT NULL PRIMARY KEY);

    INSERT INTO @Found (OwnerToken)
    SELECT TOP (@Leases) l.OwnerToken
    FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE l.LockedUntil > CAST('0001-01-01' AS DATETIME2(3))
    ORDER BY l.LockedUntil DESC
    OPTION (MAXDOP 1);

    INSERT INTO @Lease (OwnerToken, WorkerId, Seqs)
    SELECT l.OwnerToken, l.WorkerId, l.Seqs
    FROM @Found AS f INNER JOIN [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON l.OwnerToken = f.OwnerToken
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Looked (OwnerToken, Seq, WorkerId)
    SELECT DISTINCT l.OwnerToken, CAST(i.value AS BIGINT), l.WorkerId
    FROM @Lease AS l CROSS APPLY OPENJSON(l.Seqs) AS i
    WHERE CAST(i.[key] AS INT) < @Sample;

    INSERT INTO @Message (Seq, WorkerId, StreamId)
    SELECT s.Seq, k.WorkerId, s.StreamId
    FROM @Looked AS k INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = k.Seq
    WHERE s.OwnerToken = k.OwnerToken
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Workers (WorkerId)
    SELECT TOP (@Limit) w.WorkerId
    FROM [dbo].[Outbox_Worker] AS w WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE w.LivesUntil > CAST('0001-01-01' AS DATETIME2(3))
    ORDER BY w.LivesUntil DESC
    OPTION (MAXDOP 1);

    SELECT w.WorkerId, w.Name,
           DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), w.StartedAt), DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), w.SeenAt),
           DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), w.LivesUntil), DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), w.StoppedAt),
           (SELECT COUNT_BIG(*) FROM @Lease AS l WHERE l.WorkerId = w.WorkerId), (SELECT COUNT_BIG(*) FROM @Message AS m WHERE m.WorkerId = w.WorkerId),
           (SELECT COUNT_BIG(DISTINCT m.StreamId) FROM @Message AS m WHERE m.WorkerId = w.WorkerId),
           DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), @Now)
    FROM @Workers AS n INNER JOIN [dbo].[Outbox_Worker] AS w WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON w.WorkerId = n.WorkerId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
