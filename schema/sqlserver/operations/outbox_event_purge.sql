-- Deletes up to limit events of a stream that is archived, or that were deleted, in order: with their positions, and with
-- their contents unless they are in the queue, too, whose purging deletes them then. It stops at the first event that has no
-- position yet, that a consumer group has not passed, that is a dead letter of one, or whose position somebody has locked.
-- Returns how many it deleted, and how many of those to delete are left. Everything is found before the first lock. Whether an
-- event has a state is checked before anything is locked, because it gets none later. A group that is new by then has not been
-- promised what was purged.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Event_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Event_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Stream NVARCHAR(255) = JSON_VALUE(@Arg, '$.stream');
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @StreamNo BIGINT, @Purged BIGINT = 0, @Ends BIGINT = 0, @Upto BIGINT, @Stop BIGINT;
    DECLARE @Groups TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, Position BIGINT NOT NULL);
    DECLARE @Events TABLE (Version BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    DECLARE @Found TABLE (
        Version BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL, Position BIGINT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NULL);
    DECLARE @Bare TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE (Position BIGINT NOT NULL PRIMARY KEY);

    SELECT @StreamNo = s.StreamNo, @Purged = s.Purged, @Ends = CASE s.Archived WHEN 1 THEN s.Version ELSE s.Hidden END
    FROM [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE s.Name = @Stream
    OPTION (MAXDOP 1);

    INSERT INTO @Groups (Topic, Position)
    SELECT g.Topic, MIN(g.Position) FROM [dbo].[Outbox_Log_Group] AS g GROUP BY g.Topic;

    INSERT INTO @Events (Version, Seq)
    SELECT TOP (@Limit) e.Version, e.Seq
    FROM [dbo].[Outbox_Event] AS e WITH (READCOMMITTEDLOCK, FORCESEEK)
    WHERE e.StreamNo = @StreamNo AND e.Version > @Purged AND e.Version <= @Ends
    ORDER BY e.Version
    OPTION (MAXDOP 1);

    INSERT INTO @Found (Version, Seq, Position, Topic)
    SELECT e.Version, e.Seq, l.Position, CASE WHEN l.Position IS NOT NULL THEN o.Topic END -- which the index of message ids does not have
    FROM @Events AS e
    INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = e.Seq
    LEFT JOIN [dbo].[Outbox_Log] AS l WITH (READCOMMITTEDLOCK, FORCESEEK) ON l.MessageId = o.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT @Stop = MIN(f.Version)
    FROM @Found AS f
    WHERE f.Position IS NULL
       OR EXISTS (SELECT 1 FROM @Groups AS g WHERE g.Topic IN (f.Topic, N'') AND g.Position < f.Position)
       OR EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK) WHERE d.Position = f.Position)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    DELETE FROM @Found WHERE Version >= @Stop;

    -- Most have a state, which can be seen without waiting for a lock.
    INSERT INTO @Bare (Seq)
    SELECT f.Seq
    FROM @Found AS f
    WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) WHERE s.Seq = f.Seq)
      AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.Seq = f.Seq)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    BEGIN TRY
        BEGIN TRANSACTION;

        -- It may have been restored, or purged by somebody else, since it was read.
        SELECT @Stop = s.StreamNo
        FROM [dbo].[Outbox_Event_Stream] AS s WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE s.Name = @Stream AND s.Purged = @Purged AND CASE s.Archived WHEN 1 THEN s.Version ELSE s.Hidden END >= @Ends
        OPTION (MAXDOP 1);
        IF @@ROWCOUNT = 0 DELETE FROM @Found;

        INSERT INTO @Held (Position)
        SELECT l.Position
        FROM @Found AS f INNER JOIN [dbo].[Outbox_Log] AS l WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON l.Position = f.Position
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT @Stop = MIN(f.Version) FROM @Found AS f WHERE NOT EXISTS (SELECT 1 FROM @Held AS h WHERE h.Position = f.Position);
        DELETE FROM @Found WHERE Version >= @Stop;

        DELETE l
        FROM @Found AS f INNER JOIN [dbo].[Outbox_Log] AS l WITH (ROWLOCK, FORCESEEK) ON l.Position = f.Position
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE e
        FROM @Found AS f INNER JOIN [dbo].[Outbox_Event] AS e WITH (ROWLOCK, FORCESEEK) ON e.StreamNo = @StreamNo AND e.Version = f.Version
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE o
        FROM @Bare AS b INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = b.Seq
        WHERE EXISTS (SELECT 1 FROM @Found AS f WHERE f.Seq = b.Seq)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT @Upto = COALESCE(MAX(Version), @Purged) FROM @Found;
        UPDATE s
        SET Purged = @Upto, Hidden = CASE WHEN s.Hidden < @Upto THEN @Upto ELSE s.Hidden END
        FROM [dbo].[Outbox_Event_Stream] AS s WITH (ROWLOCK, FORCESEEK) WHERE s.Name = @Stream AND @Upto > @Purged
        OPTION (MAXDOP 1);

        SELECT CAST(COUNT(*) AS BIGINT), @Ends - @Upto FROM @Found;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
