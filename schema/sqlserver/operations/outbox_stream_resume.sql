-- Resumes a blocked stream: its failed messages get all their attempts back, or with skip the first is skipped and stays
-- failed. Returns the number of messages: none if the stream is not blocked. Messages are locked before streams, so it does
-- not wait for a locked one: that is an error, and the call is tried again.
IF OBJECT_ID(N'[dbo].[Outbox_Stream_Resume]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stream_Resume] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stream_Resume]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Stream BIGINT = CAST(JSON_VALUE(@Arg, '$.stream_id') AS BIGINT);
    DECLARE @Skip BIT = CASE JSON_VALUE(@Arg, '$.skip') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Streams NVARCHAR(MAX) = N'[' + JSON_VALUE(@Arg, '$.stream_id') + N']';
    DECLARE @RunLast BIGINT, @Status TINYINT, @Count INT = 0;
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Status TINYINT NOT NULL, Flags TINYINT NOT NULL);
    DECLARE @Unseen TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    BEGIN TRY
        BEGIN TRANSACTION;

        SELECT @RunLast = RunLast, @Status = Status FROM [dbo].[Outbox_Stream] WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
        WHERE StreamId = @Stream
        OPTION (MAXDOP 1);

        IF @Status = 2
        BEGIN
            INSERT INTO @Rows (Seq)
            SELECT q.Seq FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, FORCESEEK)
            WHERE q.StreamId = @Stream AND q.Seq <= @RunLast
            OPTION (MAXDOP 1);

            INSERT INTO @Held (Seq, Status, Flags)
            SELECT s.Seq, s.Status, s.Flags
            FROM @Rows AS r INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = r.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            INSERT INTO @Unseen (Seq)
            SELECT s.Seq
            FROM @Rows AS r INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = r.Seq
            WHERE NOT EXISTS (SELECT 1 FROM @Held AS h WHERE h.Seq = r.Seq)
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            IF @@ROWCOUNT > 0
                THROW 51205, 'another transaction has locked messages of the stream; try again', 1;

            DELETE FROM @Held WHERE Status <> 3 OR Flags & 4 = 4;
            IF @Skip = 1 DELETE FROM @Held WHERE Seq > (SELECT MIN(h.Seq) FROM @Held AS h);
            SELECT @Count = COUNT(*) FROM @Held;
        END

        IF @Count > 0
        BEGIN
            UPDATE s
            SET Status = CASE @Skip WHEN 1 THEN s.Status ELSE 5 END,
                Flags = CASE @Skip WHEN 1 THEN s.Flags | 4 ELSE s.Flags END,
                RetryCount = CASE @Skip WHEN 1 THEN s.RetryCount ELSE 0 END,
                NextAttemptAt = CASE @Skip WHEN 1 THEN s.NextAttemptAt ELSE @Now END,
                ProcessedAt = CASE @Skip WHEN 1 THEN s.ProcessedAt END,
                WorkerId = CASE @Skip WHEN 1 THEN s.WorkerId END
            FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK) ON s.Seq = h.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            EXEC [dbo].[Outbox_Stream_Free] @Streams = @Streams;
        END

        SELECT CAST(@Count AS BIGINT);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
