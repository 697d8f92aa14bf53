-- Ends messages that nobody holds: ready ones as failed, which counts them in their joins; or, with replaced, failed ones as
-- done, because another message has taken the place of each: those were counted when they failed. The reason becomes an
-- attempt with outcome 5. Returns a row with the Seq of each and, under Seq 0, the joins that have ended. A message of a
-- stream leaves its queue, so that those behind it go on; if a router has its arrival, it is queued after all, and leaves as
-- soon as it is the first. Locked messages are skipped.
IF OBJECT_ID(N'[dbo].[Outbox_End]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_End] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_End]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Worker NVARCHAR(100) = JSON_VALUE(@Arg, '$.worker');
    DECLARE @Replaced BIT = CASE JSON_VALUE(@Arg, '$.replaced') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Reason NVARCHAR(MAX);
    DECLARE @WorkerId INT, @Found INT, @Ended NVARCHAR(MAX), @Streams NVARCHAR(MAX);
    DECLARE @Ids TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, StreamId BIGINT NULL, Status TINYINT NOT NULL,
        RetryCount INT NOT NULL, Flags TINYINT NOT NULL);
    DECLARE @Wanted TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Locked TABLE (StreamId BIGINT NOT NULL PRIMARY KEY);

    SELECT @Reason = j.reason FROM OPENJSON(@Arg) WITH (reason NVARCHAR(MAX) '$.reason') AS j;

    INSERT INTO @Ids (MessageId)
    SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER) FROM OPENJSON(@Arg, '$.ids') AS i;

    INSERT INTO @Rows (Seq, MessageId)
    SELECT o.Seq, o.MessageId
    FROM @Ids AS i INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON o.MessageId = i.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    BEGIN TRY
        BEGIN TRANSACTION;

        EXEC [dbo].[Outbox_Worker_Number] @Worker = @Worker, @Number = @WorkerId OUTPUT;

        INSERT INTO @Held (Seq, MessageId, StreamId, Status, RetryCount, Flags)
        SELECT s.Seq, r.MessageId, s.StreamId, s.Status, s.RetryCount, s.Flags
        FROM @Rows AS r INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = r.Seq
        WHERE (@Replaced = 0 AND s.Status IN (0, 5)) OR (@Replaced = 1 AND s.Status = 3)
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Found = @@ROWCOUNT;

        UPDATE s
        SET Status = CASE @Replaced WHEN 1 THEN 2 ELSE 3 END, ProcessedAt = @Now, WorkerId = @WorkerId,
            Flags = CASE WHEN s.StreamId IS NULL THEN s.Flags ELSE s.Flags | 4 END
        FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = h.Seq
        WHERE s.Status = h.Status AND s.Flags = h.Flags
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        -- Never if UPDLOCK is honoured.
        IF @@ROWCOUNT <> @Found
            THROW 51205, 'a message was taken while it was ended; try again', 1;

        INSERT INTO [dbo].[Outbox_Attempt] (Seq, HappenedAt, WorkerId, Attempt, Outcome, Error)
        SELECT h.Seq, @Now, @WorkerId, h.RetryCount, 5, @Reason FROM @Held AS h;

        SELECT h.Seq, CAST(h.MessageId AS CHAR(36)), CAST(NULL AS NVARCHAR(255)), CAST(NULL AS INT), CAST(NULL AS INT), CAST(NULL AS INT), CAST(NULL AS INT)
        FROM @Held AS h;

        IF @Replaced = 0 AND EXISTS (SELECT 1 FROM @Held WHERE Flags & 1 = 1)
        BEGIN
            SELECT @Ended = N'[' + STRING_AGG(CAST(N'{"id":"' + CAST(h.MessageId AS NVARCHAR(36)) + N'","status":2}' AS NVARCHAR(MAX)), N',') + N']'
            FROM @Held AS h WHERE h.Flags & 1 = 1;
            EXEC [dbo].[Outbox_Join_Count] @Arg = @Ended, @Outer = 0;
        END

        INSERT INTO @Wanted (StreamId) SELECT DISTINCT h.StreamId FROM @Held AS h WHERE h.StreamId IS NOT NULL;
        IF @@ROWCOUNT > 0
        BEGIN
            INSERT INTO @Locked (StreamId)
            SELECT t.StreamId
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox_Stream] AS t WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON t.StreamId = w.StreamId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            DELETE q
            FROM @Held AS h INNER JOIN [dbo].[Outbox_Queue] AS q WITH (ROWLOCK, FORCESEEK) ON q.StreamId = h.StreamId AND q.Seq = h.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            DELETE a
            FROM @Held AS h INNER JOIN [dbo].[Outbox_Arrival] AS a WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON a.Seq = h.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            SELECT @Streams = N'[' + STRING_AGG(CAST(StreamId AS NVARCHAR(MAX)), N',') + N']' FROM @Wanted;
            EXEC [dbo].[Outbox_Stream_Free] @Streams = @Streams;
        END

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
