-- Looks at up to limit positions, and deletes those that are older than the given age and that every consumer group of their
-- topic, and every group of the whole log (topic ''), has passed, with their messages if they have no state, which are for
-- the log alone. A group's dead letters stay, and so do events: a round begins after those that the log begins with, of
-- which it passes at most a hundred times limit that it has not passed before, and ends at the first position that is too
-- young. Returns how many were deleted, and where to continue: the after of the next call, or 0 at the end. Whether a
-- message has a state is checked before anything is locked, because it gets none later. After the first lock it waits for
-- nobody.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));
    DECLARE @After BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT), 0);
    DECLARE @Begins BIT = CASE @After WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @Swept BIGINT, @Highest BIGINT, @Other BIGINT, @Count INT, @Young BIGINT, @Next BIGINT = 0, @FirstAt DATETIME2(3);
    DECLARE @Groups TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, Position BIGINT NOT NULL);
    DECLARE @Looked TABLE (Position BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL,
                           LoggedAt DATETIME2(3) NOT NULL);
    DECLARE @Found TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NULL);
    DECLARE @Bare TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Old TABLE (Position BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NULL);

    SELECT @Swept = w.Position FROM [dbo].[Outbox_Event_Swept] AS w WITH (FORCESEEK) WHERE w.Id = 1 OPTION (MAXDOP 1);
    IF @Begins = 1
    BEGIN
        -- Nothing is skipped here: a position that another purge has locked may stay.
        SELECT @Highest = c.Position FROM [dbo].[Outbox_Log_Counter] AS c WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE c.Id = 1 OPTION (MAXDOP 1);
        IF @Swept > @Highest SET @Swept = @Highest;
        IF @Highest > @Swept + 100 * CAST(@Limit AS BIGINT) SET @Highest = @Swept + 100 * CAST(@Limit AS BIGINT);
        SELECT TOP (1) @Other = l.Position
        FROM [dbo].[Outbox_Log] AS l WITH (READCOMMITTEDLOCK, FORCESEEK)
        LEFT JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = l.MessageId
        LEFT JOIN [dbo].[Outbox_Event] AS e WITH (FORCESEEK) ON e.Seq = o.Seq
        WHERE l.Position > @Swept AND l.Position <= @Highest AND e.Seq IS NULL
        ORDER BY l.Position
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Swept = COALESCE(@Other - 1, @Highest);
        SET @After = @Swept;
    END

    SELECT TOP (1) @FirstAt = l.LoggedAt
    FROM [dbo].[Outbox_Log] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE l.Position > @After
    ORDER BY l.Position
    OPTION (MAXDOP 1);
    IF @FirstAt <= @Before
    BEGIN
        INSERT INTO @Looked (Position, MessageId, Topic, LoggedAt)
        SELECT TOP (@Limit) l.Position, l.MessageId, l.Topic, l.LoggedAt
        FROM [dbo].[Outbox_Log] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE l.Position > @After
        ORDER BY l.Position
        OPTION (MAXDOP 1);
        SET @Count = @@ROWCOUNT;
    END
    SELECT @Young = MIN(Position) FROM @Looked WHERE LoggedAt > @Before;
    IF @Young IS NULL AND @Count = @Limit SELECT @Next = MAX(Position) FROM @Looked;

    -- Found without update locks, which would stay on everything that a lagging group has yet to read.
    INSERT INTO @Groups (Topic, Position)
    SELECT g.Topic, MIN(g.Position) FROM [dbo].[Outbox_Log_Group] AS g GROUP BY g.Topic;

    INSERT INTO @Found (Position, Seq)
    SELECT l.Position, o.Seq
    FROM @Looked AS l
    LEFT JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = l.MessageId
    WHERE (@Young IS NULL OR l.Position < @Young)
      AND NOT EXISTS (SELECT 1 FROM @Groups AS g WHERE g.Topic IN (l.Topic, N'') AND g.Position < l.Position)
      AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK) WHERE d.Position = l.Position)
      AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Event] AS e WITH (FORCESEEK) WHERE e.Seq = o.Seq)
    ORDER BY l.Position
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    -- Most have a state, which can be seen without waiting for a lock.
    INSERT INTO @Bare (Seq)
    SELECT f.Seq
    FROM @Found AS f
    WHERE f.Seq IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) WHERE s.Seq = f.Seq)
      AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.Seq = f.Seq)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Old (Position, Seq)
        SELECT l.Position, f.Seq
        FROM @Found AS f INNER JOIN [dbo].[Outbox_Log] AS l WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON l.Position = f.Position
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE l
        FROM @Old AS d INNER JOIN [dbo].[Outbox_Log] AS l WITH (ROWLOCK, FORCESEEK) ON l.Position = d.Position
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE o
        FROM @Bare AS b INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = b.Seq
        WHERE EXISTS (SELECT 1 FROM @Old AS d WHERE d.Seq = b.Seq)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        UPDATE w SET Position = @Swept
        FROM [dbo].[Outbox_Event_Swept] AS w WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) WHERE w.Id = 1 AND w.Position <> @Swept AND @Begins = 1
        OPTION (MAXDOP 1);

        SELECT CAST(COUNT(*) AS BIGINT), @Next FROM @Old;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
