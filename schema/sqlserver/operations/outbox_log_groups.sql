-- Lists the consumer groups of the log, by name, at most limit after a name, with how far behind they are: messages that they have
-- not passed and dead letters, each counted up to counted, and when the first of those messages was logged. A group without
-- a topic reads the whole log. Groups are read with NOLOCK: a reader may hold the row of its group for as long as it handles a
-- message, and must not be missing then.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Groups]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Groups] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Groups]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Counted INT = CAST(JSON_VALUE(@Arg, '$.counted') AS INT);
    DECLARE @AfterGroup NVARCHAR(255) = COALESCE(JSON_VALUE(@Arg, '$.after_group'), N'');
    DECLARE @AfterTopic NVARCHAR(255) = COALESCE(JSON_VALUE(@Arg, '$.after_topic'), N'');
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Groups TABLE (
        Place INT IDENTITY(1, 1) NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL,
        Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, Position BIGINT NOT NULL, LockedUntil DATETIME2(3) NULL, Attempts INT NOT NULL);

    INSERT INTO @Groups (GroupName, Topic, Position, LockedUntil, Attempts)
    SELECT TOP (@Limit) g.GroupName, g.Topic, g.Position, g.LockedUntil, CASE WHEN g.Tried > g.Position THEN g.Attempts ELSE 0 END
    FROM [dbo].[Outbox_Log_Group] AS g WITH (NOLOCK, FORCESEEK)
    WHERE g.GroupName >= @AfterGroup AND (g.GroupName > @AfterGroup OR g.Topic > @AfterTopic)
    ORDER BY g.GroupName, g.Topic
    OPTION (MAXDOP 1);

    -- No message has an empty topic: of each two counts, and of the two times, one finds nothing.
    SELECT g.GroupName, g.Topic, g.Position,
           (SELECT CAST(COUNT(*) AS BIGINT)
            FROM (SELECT TOP (@Counted) l.Position FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK)
                  WHERE g.Topic = N'' AND l.Position > g.Position) AS c)
           + (SELECT CAST(COUNT(*) AS BIGINT)
              FROM (SELECT TOP (@Counted) l.Position FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK)
                    WHERE l.Topic = g.Topic AND l.Position > g.Position) AS c),
           DATEDIFF_BIG(MILLISECOND, @Epoch, COALESCE(
               (SELECT TOP (1) l.LoggedAt FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK)
                WHERE g.Topic = N'' AND l.Position > g.Position ORDER BY l.Position),
               -- The index of topics does not have the time.
               (SELECT l.LoggedAt
                FROM (SELECT TOP (1) t.Position FROM [dbo].[Outbox_Log] AS t WITH (FORCESEEK)
                      WHERE t.Topic = g.Topic AND t.Position > g.Position ORDER BY t.Position) AS n
                INNER JOIN [dbo].[Outbox_Log] AS l WITH (FORCESEEK) ON l.Position = n.Position))),
           (SELECT CAST(COUNT(*) AS BIGINT)
            FROM (SELECT TOP (@Counted) d.Position FROM [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK)
                  WHERE d.GroupName = g.GroupName AND (g.Topic = N'' OR d.Topic = g.Topic)) AS c),
           DATEDIFF_BIG(MILLISECOND, @Epoch, g.LockedUntil), g.Attempts, DATEDIFF_BIG(MILLISECOND, @Epoch, SYSUTCDATETIME())
    FROM @Groups AS g
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
