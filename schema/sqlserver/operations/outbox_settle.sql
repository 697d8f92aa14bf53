-- Ends or returns held messages of any number of claims in one transaction, and answers with the receipts it refused.
-- Held means in progress with the same owner token; an expired lease that nobody took is still held.
-- Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3 fail. Rows are locked in order of Seq.
-- A caller's transaction is never ended here: an error takes back what was done here, and the caller decides.
IF OBJECT_ID(N'[dbo].[Outbox_Settle]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Settle] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Settle]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Worker NVARCHAR(100) = JSON_VALUE(@Arg, '$.worker');
    DECLARE @Backoff BIGINT = CAST(JSON_VALUE(@Arg, '$.backoff_ms') AS BIGINT);
    DECLARE @BackoffMax BIGINT = CAST(JSON_VALUE(@Arg, '$.backoff_max_ms') AS BIGINT);
    DECLARE @DeleteAcked BIT = CASE JSON_VALUE(@Arg, '$.delete_acked') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Wanted TABLE (
        Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Outcome TINYINT NOT NULL, DelayMs BIGINT NULL,
        Error NVARCHAR(MAX) NULL, PRIMARY KEY (Seq, OwnerToken));
    DECLARE @Settled TABLE (Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, PRIMARY KEY (Seq, OwnerToken));

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Settle;

        INSERT INTO @Wanted (Seq, OwnerToken, Outcome, DelayMs, Error)
        SELECT CAST(s.value AS BIGINT), g.owner, g.outcome, g.delay_ms, g.error
        FROM OPENJSON(@Arg, '$.groups') WITH (
                 owner UNIQUEIDENTIFIER '$.owner', outcome TINYINT '$.outcome', delay_ms BIGINT '$.delay_ms',
                 error NVARCHAR(MAX) '$.error', seqs NVARCHAR(MAX) '$.seqs' AS JSON) AS g
        CROSS APPLY OPENJSON(g.seqs) AS s;

        IF @DeleteAcked = 1
            DELETE o
            OUTPUT w.Seq, w.OwnerToken INTO @Settled (Seq, OwnerToken)
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK) ON o.Seq = w.Seq
            WHERE o.Status = 1 AND o.OwnerToken = w.OwnerToken AND w.Outcome = 0
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        UPDATE o
        SET Status = CASE w.Outcome WHEN 0 THEN 2 WHEN 3 THEN 3 ELSE 0 END,
            OwnerToken = NULL,
            LockedUntil = NULL,
            RetryCount = o.RetryCount + CASE w.Outcome WHEN 1 THEN 1 ELSE 0 END,
            NextAttemptAt = CASE
                WHEN w.Outcome IN (0, 3) THEN o.NextAttemptAt
                ELSE DATEADD(MILLISECOND, d.DelayMs % 86400000, DATEADD(DAY, d.DelayMs / 86400000, @Now)) END,
            LastError = COALESCE(w.Error, o.LastError),
            ProcessedAt = CASE WHEN w.Outcome IN (0, 3) THEN @Now END,
            ProcessedBy = CASE WHEN w.Outcome IN (0, 3) THEN @Worker END
        OUTPUT w.Seq, w.OwnerToken INTO @Settled (Seq, OwnerToken)
        FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK) ON o.Seq = w.Seq
        CROSS APPLY (SELECT CASE
            WHEN w.DelayMs IS NOT NULL THEN w.DelayMs
            WHEN w.Outcome <> 1 THEN 0
            WHEN o.RetryCount >= 30 OR @Backoff * POWER(CAST(2 AS BIGINT), o.RetryCount) > @BackoffMax THEN @BackoffMax
            ELSE @Backoff * POWER(CAST(2 AS BIGINT), o.RetryCount) END AS DelayMs) AS d
        WHERE o.Status = 1 AND o.OwnerToken = w.OwnerToken
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT w.Seq, CAST(w.OwnerToken AS CHAR(36)) FROM @Wanted AS w
        WHERE NOT EXISTS (SELECT 1 FROM @Settled AS s WHERE s.Seq = w.Seq AND s.OwnerToken = w.OwnerToken);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Settle;
        THROW;
    END CATCH
END
GO
