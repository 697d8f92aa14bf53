-- Deletes up to limit positions that are older than the given age and that every consumer group of their topic, and every
-- one of the whole log (its topic is ''), has passed, and the messages that are for the log alone; answers how many.
-- What a group has given up stays for as long as it is among the group's dead letters.
-- There is no index by age: the first call of a round walks to the first young position and looks at none behind it. Each
-- answers with that position, until, and with the last that it deleted, after: both are arguments of the next call.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Before DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));
    DECLARE @After BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.after') AS BIGINT), 0);
    DECLARE @Until BIGINT = CAST(JSON_VALUE(@Arg, '$.until') AS BIGINT);
    DECLARE @Old TABLE (Position BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL);

    IF @Until IS NULL
        SELECT TOP (1) @Until = Position FROM [dbo].[Outbox_Log] WITH (READPAST, FORCESEEK)
        WHERE Position > @After AND LoggedAt > @Before
        ORDER BY Position
        OPTION (MAXDOP 1);
    SET @Until = COALESCE(@Until, 9223372036854775807);

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Old (Position, MessageId)
        SELECT TOP (@Limit) l.Position, l.MessageId FROM [dbo].[Outbox_Log] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
        WHERE l.Position > @After AND l.Position < @Until AND l.LoggedAt <= @Before
          AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Group] AS g WHERE g.Topic IN (l.Topic, N'') AND g.Position < l.Position)
          AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Dead] AS d WHERE d.Position = l.Position)
        ORDER BY l.Position
        OPTION (LOOP JOIN, MAXDOP 1);

        DELETE FROM [dbo].[Outbox_Log] WITH (ROWLOCK) WHERE Position IN (SELECT Position FROM @Old) OPTION (LOOP JOIN, MAXDOP 1);

        DELETE FROM [dbo].[Outbox] WITH (ROWLOCK)
        WHERE Status = 4 AND MessageId IN (SELECT MessageId FROM @Old)
        OPTION (LOOP JOIN, MAXDOP 1);

        SELECT CAST(COUNT(*) AS BIGINT), @Until, COALESCE(MAX(Position), @After) FROM @Old;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
