-- Deletes joins that ended longer ago than the given age, first their steps, up to limit rows; returns the number of rows,
-- and of joins among them. Joins that a message still waits for are kept, and those that began longer than within_ms ago,
-- if it is given. In small batches that skip locked rows: after the first lock it waits for nobody, and a join stays as
-- long as one of its steps is being counted.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Purge]
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
    DECLARE @WithinMs BIGINT = CAST(JSON_VALUE(@Arg, '$.within_ms') AS BIGINT);
    DECLARE @Since DATETIME2(3) = COALESCE(DATEADD(MILLISECOND, -(@WithinMs % 86400000), DATEADD(DAY, -(@WithinMs / 86400000), SYSUTCDATETIME())), CAST('0001-01-01' AS DATETIME2(3)));
    DECLARE @Steps INT, @Joins INT;
    DECLARE @Found TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Sized TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Old TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Ended TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Waits TABLE (JoinId UNIQUEIDENTIFIER NOT NULL, MessageId UNIQUEIDENTIFIER NOT NULL, PRIMARY KEY (JoinId, MessageId));
    DECLARE @Count INT = 1;
    DECLARE @Gone TABLE (JoinId UNIQUEIDENTIFIER NOT NULL, MessageId UNIQUEIDENTIFIER NOT NULL, PRIMARY KEY (JoinId, MessageId));

    BEGIN TRY
        BEGIN TRANSACTION;

        -- Found without update locks, which would stay on everything that is skipped. TOP keeps each look at the waits a seek.
        INSERT INTO @Found (JoinId)
        SELECT TOP (@Limit) j.JoinId
        FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        OUTER APPLY (SELECT TOP (1) w.JoinId
                     FROM [dbo].[OutboxJoinWait] AS w WITH (READCOMMITTEDLOCK, FORCESEEK)
                     INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.MessageId = w.OutboxMessageId
                     INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = o.Seq
                     WHERE w.JoinId = j.JoinId AND s.Status <> 2) AS k
        WHERE j.Status <> 0 AND j.CreatedUtc >= @Since AND j.CreatedUtc < @Before AND j.LastUpdatedUtc < @Before AND k.JoinId IS NULL
        ORDER BY j.CreatedUtc
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        -- The size before the join, in the order of attaching, which locks the one while it reads the other.
        INSERT INTO @Sized (JoinId)
        SELECT z.JoinId
        FROM @Found AS f INNER JOIN [dbo].[OutboxJoinSize] AS z WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON z.JoinId = f.JoinId
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        -- A message may have begun to wait since, which locks the join first.
        INSERT INTO @Old (JoinId)
        SELECT j.JoinId
        FROM @Sized AS f INNER JOIN [dbo].[OutboxJoin] AS j WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON j.JoinId = f.JoinId
        OUTER APPLY (SELECT TOP (1) w.JoinId
                     FROM [dbo].[OutboxJoinWait] AS w WITH (NOLOCK, FORCESEEK)
                     INNER JOIN [dbo].[Outbox] AS o WITH (NOLOCK, FORCESEEK) ON o.MessageId = w.OutboxMessageId
                     INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = o.Seq
                     WHERE w.JoinId = j.JoinId AND s.Status <> 2) AS k
        WHERE j.Status <> 0 AND k.JoinId IS NULL
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        INSERT INTO @Gone (JoinId, MessageId)
        SELECT TOP (@Limit) m.JoinId, m.OutboxMessageId
        FROM @Old AS d INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON m.JoinId = d.JoinId
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE m
        FROM @Gone AS g
        INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (ROWLOCK, FORCESEEK) ON m.JoinId = g.JoinId AND m.OutboxMessageId = g.MessageId
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Steps = @@ROWCOUNT;

        INSERT INTO @Ended (JoinId)
        SELECT d.JoinId
        FROM @Old AS d
        WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoinMember] AS m WITH (NOLOCK, FORCESEEK) WHERE m.JoinId = d.JoinId)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        -- In batches: any number of messages may have waited for a join, and thousands of locks of one statement escalate.
        WHILE @Count > 0
        BEGIN
            DELETE FROM @Waits;
            INSERT INTO @Waits (JoinId, MessageId)
            SELECT TOP (1000) w.JoinId, w.OutboxMessageId
            FROM @Ended AS d INNER JOIN [dbo].[OutboxJoinWait] AS w WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON w.JoinId = d.JoinId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            DELETE w
            FROM @Waits AS p
            INNER JOIN [dbo].[OutboxJoinWait] AS w WITH (ROWLOCK, FORCESEEK) ON w.JoinId = p.JoinId AND w.OutboxMessageId = p.MessageId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @Count = @@ROWCOUNT;
        END

        DELETE j
        FROM @Ended AS d INNER JOIN [dbo].[OutboxJoin] AS j WITH (ROWLOCK, FORCESEEK) ON j.JoinId = d.JoinId
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Joins = @@ROWCOUNT;

        DELETE s
        FROM @Old AS d INNER JOIN [dbo].[OutboxJoinSize] AS s WITH (ROWLOCK, FORCESEEK) ON s.JoinId = d.JoinId
        WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE j.JoinId = d.JoinId)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT CAST(@Steps + @Joins AS BIGINT), CAST(@Joins AS BIGINT);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
