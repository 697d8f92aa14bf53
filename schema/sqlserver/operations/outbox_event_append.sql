-- Appends events to a stream. One compare-and-set moves the stream's row to the version after the last event, before anything
-- is inserted: a conflict is a row that was not moved, which dooms nothing. expected: -2 any version, -1 any but none, 0 none,
-- or the version itself. Returns one row, with kind 1 and the last version; kind 2 and the stream's version if that is another;
-- kind 3 if the stream is archived. If the caller has named the events and some of them are there, nothing is written and they
-- are returned instead, with kind 4: that is looked up under the stream's lock, and before the version, so that a repeated call
-- does not conflict with itself. A new stream is inserted with XACT_ABORT OFF, so that a duplicate key, which means that
-- another transaction has just committed it, can be caught. The version goes into the headers here, because only here is it
-- known.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Append]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Event_Append] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Event_Append]
    @Arg NVARCHAR(MAX),
    @Payloads VARBINARY(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0
    BEGIN
        SET XACT_ABORT ON;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END
    ELSE SET XACT_ABORT OFF;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Stream NVARCHAR(255) = JSON_VALUE(@Arg, '$.stream');
    DECLARE @Expected BIGINT = CAST(JSON_VALUE(@Arg, '$.expected') AS BIGINT);
    DECLARE @Many BIGINT = CAST(JSON_VALUE(@Arg, '$.count') AS BIGINT);
    DECLARE @Named BIT = CASE JSON_VALUE(@Arg, '$.named') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Queued BIT = CASE JSON_VALUE(@Arg, '$.queued') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Kind INT = 0, @Tries INT = 0, @Actual BIGINT = 0, @Archived BIT = 0, @StreamNo BIGINT, @Last BIGINT;
    DECLARE @Ids TABLE (MessageId UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Found TABLE (Seq BIGINT NOT NULL, StreamNo BIGINT NULL, Version BIGINT NULL, Name NVARCHAR(255) NULL);
    DECLARE @Added TABLE (
        Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL,
        TopicKey BIGINT NOT NULL, StreamId BIGINT NULL, DueAt DATETIME2(3) NULL);

    IF @Named = 1
        INSERT INTO @Ids (MessageId) SELECT i.id FROM OPENJSON(@Arg, '$.events') WITH (id UNIQUEIDENTIFIER '$.id') AS i;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Event_Append;

        SET XACT_ABORT OFF;
        WHILE @Kind = 0
        BEGIN
            SET @Tries = @Tries + 1;
            IF @Named = 1
            BEGIN
                SELECT @StreamNo = s.StreamNo
                FROM [dbo].[Outbox_Event_Stream] AS s WITH (UPDLOCK, ROWLOCK, REPEATABLEREAD, FORCESEEK) WHERE s.Name = @Stream
                OPTION (MAXDOP 1);

                INSERT INTO @Found (Seq, StreamNo, Version)
                SELECT o.Seq, e.StreamNo, e.Version
                FROM @Ids AS i
                INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.MessageId = i.MessageId
                LEFT JOIN [dbo].[Outbox_Event] AS e WITH (READCOMMITTEDLOCK, FORCESEEK) ON e.Seq = o.Seq
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
                IF @@ROWCOUNT > 0 SET @Kind = 4;
            END

            -- Without the lock, the same call may have begun the stream since the look.
            IF @Kind = 0 AND (@Named = 0 OR @StreamNo IS NOT NULL)
            BEGIN
                UPDATE s
                SET Version = s.Version + @Many
                FROM [dbo].[Outbox_Event_Stream] AS s WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE s.Name = @Stream AND s.Archived = 0
                  AND (@Expected = -2 OR (@Expected = -1 AND s.Version > s.Hidden) OR (@Expected = 0 AND s.Version = s.Hidden)
                       OR (@Expected > 0 AND s.Version = @Expected AND s.Version > s.Hidden))
                OPTION (MAXDOP 1);
                IF @@ROWCOUNT > 0 SET @Kind = 1;
            END

            IF @Kind = 0 AND @Expected IN (-2, 0)
            BEGIN TRY
                INSERT INTO [dbo].[Outbox_Event_Stream] (Name, Version)
                SELECT @Stream, @Many
                WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE s.Name = @Stream);
                IF @@ROWCOUNT > 0 SET @Kind = 1;
            END TRY
            BEGIN CATCH
                IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() <> 1 OR @Tries >= 1000 THROW;
            END CATCH

            IF @Kind = 0
            BEGIN
                SELECT @Actual = CASE WHEN s.Version > s.Hidden THEN s.Version ELSE 0 END, @Archived = s.Archived
                FROM [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE s.Name = @Stream
                OPTION (MAXDOP 1);

                -- Otherwise somebody has committed the stream's first events since the update.
                IF @Archived = 1 SET @Kind = 3;
                ELSE IF (@Expected = -1 AND @Actual = 0) OR (@Expected >= 0 AND @Actual <> @Expected) SET @Kind = 2;
                ELSE IF @Tries >= 1000
                    THROW 51000, 'the stream comes and goes faster than it can be moved; try again', 1;
            END
        END

        IF @Kind = 1
        BEGIN
            SELECT @StreamNo = s.StreamNo, @Last = s.Version
            FROM [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE s.Name = @Stream
            OPTION (MAXDOP 1);

            INSERT INTO [dbo].[Outbox]
                (MessageId, Uuid, Topic, TopicKey, Payload, Headers, CorrelationId, StreamKey, StreamId, CreatedAt, DueTimeUtc)
            OUTPUT inserted.Seq, inserted.MessageId, inserted.Topic, inserted.TopicKey, inserted.StreamId, inserted.DueTimeUtc
            INTO @Added (Seq, MessageId, Topic, TopicKey, StreamId, DueAt)
            SELECT m.id, m.uuid, m.topic, m.topic_key, SUBSTRING(@Payloads, m.[at] + 1, m.size),
                   STUFF(COALESCE(m.headers_text, m.headers), 1, 1, N'{"outbox_event_version":"' + CAST(@Last - @Many + 1 + m.n AS NVARCHAR(20)) + N'",'), m.correlation_id,
                   m.stream_key, m.stream_id, @Now,
                   CASE WHEN m.due_ms IS NOT NULL
                        THEN DATEADD(MILLISECOND, m.due_ms % 86400000, DATEADD(DAY, m.due_ms / 86400000, CAST('1970-01-01' AS DATETIME2(3))))
                        WHEN m.delay_ms IS NOT NULL
                        THEN DATEADD(MILLISECOND, m.delay_ms % 86400000, DATEADD(DAY, m.delay_ms / 86400000, @Now)) END
            FROM OPENJSON(@Arg, '$.events') WITH (
                     n INT '$.n', id UNIQUEIDENTIFIER '$.id', uuid NVARCHAR(255) '$.uuid', topic NVARCHAR(255) '$.topic',
                     topic_key BIGINT '$.topic_key', [at] INT '$.at', size INT '$.size', headers NVARCHAR(MAX) '$.headers' AS JSON,
                     headers_text NVARCHAR(MAX) '$.headers_text',
                     correlation_id NVARCHAR(255) '$.correlation_id', stream_key NVARCHAR(255) '$.stream_key', stream_id BIGINT '$.stream_id',
                     due_ms BIGINT '$.due_ms', delay_ms BIGINT '$.delay_ms') AS m
            ORDER BY m.n;

            INSERT INTO [dbo].[Outbox_Event] (StreamNo, Version, Seq, Size)
            SELECT @StreamNo, @Last - @Many + ROW_NUMBER() OVER (ORDER BY a.Seq), a.Seq, CAST(DATALENGTH(o.Payload) + DATALENGTH(o.Headers) AS INT)
            FROM @Added AS a INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = a.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            IF @Queued = 1
            BEGIN
                INSERT INTO [dbo].[Outbox_State] (Seq, TopicKey, StreamId, NextAttemptAt, Size, Status, Flags, Stages)
                SELECT a.Seq, a.TopicKey, a.StreamId, CASE WHEN a.DueAt > @Now THEN a.DueAt ELSE @Now END, e.Size, CASE WHEN a.StreamId IS NULL THEN 0 ELSE 5 END, 2, 2
                FROM @Added AS a INNER JOIN [dbo].[Outbox_Event] AS e WITH (READCOMMITTEDLOCK, FORCESEEK) ON e.Seq = a.Seq
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

                INSERT INTO [dbo].[Outbox_Arrival] (Seq, StreamId, TopicKey)
                SELECT a.Seq, a.StreamId, a.TopicKey FROM @Added AS a WHERE a.StreamId IS NOT NULL;
            END

            INSERT INTO [dbo].[Outbox_Log_Pending] (Seq, MessageId, Topic)
            SELECT Seq, MessageId, Topic FROM @Added ORDER BY Seq;
        END

        IF @Kind = 4
        BEGIN
            UPDATE f
            SET Name = s.Name
            FROM @Found AS f INNER JOIN [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) ON s.StreamNo = f.StreamNo
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            -- Contents last and alone: a statement that returns large columns keeps the locks of their rows to its end.
            SELECT 4, COALESCE(f.Version, 0), CAST(o.MessageId AS CHAR(36)), COALESCE(f.Name, N''), o.Topic, COALESCE(o.Headers, N''), o.Payload
            FROM @Found AS f INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.Seq = f.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        END
        ELSE
            SELECT @Kind, CASE @Kind WHEN 1 THEN @Last ELSE @Actual END, '', N'', N'', N'', CAST(0x AS VARBINARY(MAX));

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Event_Append;
        THROW;
    END CATCH
END
GO
