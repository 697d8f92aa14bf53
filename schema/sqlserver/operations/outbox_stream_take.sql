-- Takes messages of a blocked stream under a lease, to be discarded: up to limit, due or not. Returns them and, under Seq 0,
-- if the stream is blocked, the last that waits there now, which is an argument of the next call, so that a series of calls
-- does not take messages that arrived since. Messages are locked before streams, so it does not wait for a locked one: that
-- is an error, and the call is tried again.
IF OBJECT_ID(N'[dbo].[Outbox_Stream_Take]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stream_Take] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stream_Take]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Stream BIGINT = CAST(JSON_VALUE(@Arg, '$.stream_id') AS BIGINT);
    DECLARE @Owner UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.owner');
    DECLARE @Worker NVARCHAR(100) = JSON_VALUE(@Arg, '$.worker');
    DECLARE @LeaseMs INT = CAST(JSON_VALUE(@Arg, '$.lease_ms') AS INT);
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Until BIGINT = CAST(JSON_VALUE(@Arg, '$.until') AS BIGINT);
    DECLARE @Status TINYINT, @Last BIGINT, @Count INT, @WorkerId INT, @Seqs NVARCHAR(MAX);
    DECLARE @Found TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    BEGIN TRY
        BEGIN TRANSACTION;

        SELECT @Status = Status FROM [dbo].[Outbox_Stream] WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
        WHERE StreamId = @Stream
        OPTION (MAXDOP 1);

        IF @Status = 2
        BEGIN
            IF @Until IS NULL
                SELECT TOP (1) @Until = q.Seq FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, FORCESEEK)
                WHERE q.StreamId = @Stream
                ORDER BY q.Seq DESC
                OPTION (MAXDOP 1);

            INSERT INTO @Found (Seq)
            SELECT TOP (@Limit) q.Seq
            FROM [dbo].[Outbox_Queue] AS q WITH (READCOMMITTEDLOCK, FORCESEEK)
            INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = q.Seq
            WHERE q.StreamId = @Stream AND q.Seq <= @Until AND s.Status = 5
            ORDER BY q.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @Count = @@ROWCOUNT;

            INSERT INTO @Held (Seq)
            SELECT s.Seq
            FROM @Found AS f INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = f.Seq
            WHERE s.Status = 5
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            IF @@ROWCOUNT <> @Count
                THROW 51205, 'another transaction has locked messages of the stream; try again', 1;

            IF @Count > 0
            BEGIN
                UPDATE s
                SET Status = 1, OwnerToken = @Owner
                FROM @Held AS h INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK) ON s.Seq = h.Seq
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

                SELECT @Last = MAX(h.Seq) FROM @Held AS h;
                UPDATE t
                SET Status = 1, OwnerToken = @Owner,
                    RunLast = CASE WHEN t.RunLast > @Last THEN t.RunLast ELSE @Last END
                FROM [dbo].[Outbox_Stream] AS t WITH (ROWLOCK, FORCESEEK)
                WHERE t.StreamId = @Stream
                OPTION (MAXDOP 1);

                EXEC [dbo].[Outbox_Worker_Number] @Worker = @Worker, @Number = @WorkerId OUTPUT;
                SELECT @Seqs = STRING_AGG(CAST(Seq AS NVARCHAR(MAX)), N',') FROM @Held;

                INSERT INTO [dbo].[Outbox_Lease] (OwnerToken, WorkerId, LockedUntil, Seqs, Streams)
                VALUES (@Owner, @WorkerId, DATEADD(MILLISECOND, @LeaseMs, SYSUTCDATETIME()), N'[' + @Seqs + N']', N'[' + CAST(@Stream AS NVARCHAR(20)) + N']');
            END

            SELECT CAST(0 AS BIGINT), @Until
            UNION ALL
            SELECT h.Seq, @Until FROM @Held AS h;
        END

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
