-- Lists the topics with messages waiting in streams, with their number (counted up to limit), the oldest due time, and how
-- many streams are blocked. It jumps from topic to topic in the indexes; leased streams are found by their leases.
IF OBJECT_ID(N'[dbo].[Outbox_Stream_Topics]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stream_Topics] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stream_Topics]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Key BIGINT, @Before BIGINT;
    DECLARE @Arrived TABLE (TopicKey BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, Waiting BIGINT NOT NULL);
    DECLARE @Leased TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, Streams NVARCHAR(MAX) NOT NULL);
    DECLARE @Served TABLE (StreamId BIGINT NOT NULL PRIMARY KEY, TopicKey BIGINT NOT NULL, RunLast BIGINT NOT NULL);
    DECLARE @Ready TABLE (TopicKey BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL);
    DECLARE @Blocked TABLE (TopicKey BIGINT NOT NULL PRIMARY KEY, StreamId BIGINT NOT NULL, Streams BIGINT NOT NULL);
    DECLARE @Topics TABLE (TopicKey BIGINT NOT NULL PRIMARY KEY, Queued BIGINT NOT NULL, Arrived BIGINT NOT NULL, Blocked BIGINT NOT NULL, Seq BIGINT NULL);

    INSERT INTO @Arrived (TopicKey, Seq, Waiting)
    SELECT a.TopicKey, MIN(a.Seq), COUNT(*)
    FROM (SELECT TOP (@Limit) TopicKey, Seq FROM [dbo].[Outbox_Arrival] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE Seq > 0 ORDER BY Seq) AS a
    GROUP BY a.TopicKey
    OPTION (MAXDOP 1);

    INSERT INTO @Leased (OwnerToken, Streams)
    SELECT l.OwnerToken, l.Streams FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE l.LockedUntil > CAST('0001-01-01' AS DATETIME2(3)) AND l.Streams IS NOT NULL
    OPTION (MAXDOP 1);

    INSERT INTO @Served (StreamId, TopicKey, RunLast)
    SELECT DISTINCT t.StreamId, t.TopicKey, t.RunLast
    FROM @Leased AS l
    CROSS APPLY OPENJSON(l.Streams) AS i
    INNER JOIN [dbo].[Outbox_Stream] AS t WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON t.StreamId = CAST(i.value AS BIGINT)
    WHERE t.OwnerToken = l.OwnerToken
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT TOP (1) @Key = TopicKey FROM [dbo].[Outbox_Stream] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE Status = 0 AND TopicKey >= CAST(-9223372036854775808 AS BIGINT) ORDER BY TopicKey
    OPTION (MAXDOP 1);
    WHILE @Key IS NOT NULL
    BEGIN
        INSERT INTO @Ready (TopicKey, StreamId)
        SELECT TOP (1) TopicKey, StreamId FROM [dbo].[Outbox_Stream] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE Status = 0 AND TopicKey = @Key ORDER BY NextAttemptAt, StreamId
        OPTION (MAXDOP 1);

        SET @Before = @Key;
        SET @Key = NULL;
        SELECT TOP (1) @Key = TopicKey FROM [dbo].[Outbox_Stream] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE Status = 0 AND TopicKey > @Before ORDER BY TopicKey
        OPTION (MAXDOP 1);
    END

    SELECT TOP (1) @Key = TopicKey FROM [dbo].[Outbox_Stream] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE Status = 2 AND TopicKey >= CAST(-9223372036854775808 AS BIGINT) ORDER BY TopicKey
    OPTION (MAXDOP 1);
    WHILE @Key IS NOT NULL
    BEGIN
        INSERT INTO @Blocked (TopicKey, StreamId, Streams)
        SELECT @Key, MIN(b.StreamId), COUNT(*)
        FROM (SELECT TOP (@Limit) StreamId FROM [dbo].[Outbox_Stream] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
              WHERE Status = 2 AND TopicKey = @Key ORDER BY StreamId) AS b
        HAVING COUNT(*) > 0
        OPTION (MAXDOP 1);

        SET @Before = @Key;
        SET @Key = NULL;
        SELECT TOP (1) @Key = TopicKey FROM [dbo].[Outbox_Stream] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE Status = 2 AND TopicKey > @Before ORDER BY TopicKey
        OPTION (MAXDOP 1);
    END

    INSERT INTO @Topics (TopicKey, Queued, Arrived, Blocked)
    SELECT k.TopicKey,
           (SELECT COUNT(*) FROM (
                SELECT TOP (@Limit) q.Seq
                FROM [dbo].[Outbox_Stream] AS t WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                INNER JOIN [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON q.StreamId = t.StreamId
                WHERE t.Status = 0 AND t.TopicKey = k.TopicKey AND t.NextAttemptAt <= @Now) AS r)
           + (SELECT COUNT(*) FROM (
                SELECT TOP (@Limit) q.Seq
                FROM @Served AS v
                INNER JOIN [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON q.StreamId = v.StreamId
                WHERE v.TopicKey = k.TopicKey AND q.Seq > v.RunLast) AS r),
           COALESCE((SELECT a.Waiting FROM @Arrived AS a WHERE a.TopicKey = k.TopicKey), 0),
           COALESCE((SELECT b.Streams FROM @Blocked AS b WHERE b.TopicKey = k.TopicKey), 0)
    FROM (SELECT a.TopicKey FROM @Arrived AS a UNION SELECT v.TopicKey FROM @Served AS v
          UNION SELECT r.TopicKey FROM @Ready AS r UNION SELECT b.TopicKey FROM @Blocked AS b) AS k
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- The topic's name, and since when it waits, come from one message: of the stream that has waited longest, otherwise of
    -- one being served, otherwise of an arrival; if nothing waits, of one that blocks.
    UPDATE k
    SET Seq = COALESCE(
        (SELECT TOP (1) q.Seq FROM @Ready AS r INNER JOIN [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON q.StreamId = r.StreamId
         WHERE r.TopicKey = k.TopicKey ORDER BY q.Seq),
        (SELECT TOP (1) q.Seq FROM @Served AS v INNER JOIN [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON q.StreamId = v.StreamId
         WHERE v.TopicKey = k.TopicKey AND q.Seq > v.RunLast ORDER BY q.Seq),
        (SELECT a.Seq FROM @Arrived AS a WHERE a.TopicKey = k.TopicKey),
        (SELECT TOP (1) q.Seq FROM @Blocked AS b INNER JOIN [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON q.StreamId = b.StreamId
         WHERE b.TopicKey = k.TopicKey ORDER BY q.Seq))
    FROM @Topics AS k
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT f.Topic, f.Waiting, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), f.Oldest), DATEDIFF_BIG(MILLISECOND, f.Oldest, @Now), f.Blocked
    FROM (SELECT o.Topic, CASE WHEN k.Queued + k.Arrived > @Limit THEN CAST(@Limit AS BIGINT) ELSE k.Queued + k.Arrived END AS Waiting,
                 CASE WHEN k.Queued + k.Arrived > 0 AND s.NextAttemptAt < @Now THEN s.NextAttemptAt ELSE @Now END AS Oldest, k.Blocked
          FROM @Topics AS k
          INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = k.Seq
          LEFT JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = k.Seq) AS f
    WHERE f.Waiting > 0 OR f.Blocked > 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
