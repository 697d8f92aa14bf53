-- Ends or returns held messages of any number of claims in one transaction, counts the steps that have ended in their
-- joins, and answers with the receipts it refused and, under seq 0, with the joins that have ended.
-- Held means in progress with the same owner token; an expired lease that nobody took is still held.
-- Outcomes: 0 ack, 1 retry (spends an attempt), 2 release (spends none), 3 fail. Rows are locked in order of Seq.
-- With pass_over, a row that another transaction has locked is not waited for: its receipt is answered with status 1, busy,
-- to be tried again, and holds up no other.
-- A caller's transaction is never ended here: an error takes back what was done here, and the caller decides.
IF OBJECT_ID(N'[dbo].[Outbox_Settle]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Settle] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Settle]
    @Arg NVARCHAR(MAX)
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
    DECLARE @Worker NVARCHAR(100) = JSON_VALUE(@Arg, '$.worker');
    DECLARE @Backoff BIGINT = CAST(JSON_VALUE(@Arg, '$.backoff_ms') AS BIGINT);
    DECLARE @BackoffMax BIGINT = CAST(JSON_VALUE(@Arg, '$.backoff_max_ms') AS BIGINT);
    DECLARE @DeleteAcked BIT = CASE JSON_VALUE(@Arg, '$.delete_acked') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @PassOver BIT = CASE JSON_VALUE(@Arg, '$.pass_over') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Wanted TABLE (
        Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Outcome TINYINT NOT NULL, DueAt DATETIME2(3) NULL,
        Error NVARCHAR(MAX) NULL, Held BIT NOT NULL, MessageId UNIQUEIDENTIFIER NULL, PRIMARY KEY (Seq, OwnerToken));
    DECLARE @Free TABLE (Seq BIGINT NOT NULL PRIMARY KEY, OwnerToken UNIQUEIDENTIFIER NOT NULL, MessageId UNIQUEIDENTIFIER NOT NULL);
    DECLARE @Counted TABLE (
        JoinId UNIQUEIDENTIFIER NOT NULL, MessageId UNIQUEIDENTIFIER NOT NULL, Status TINYINT NOT NULL, PRIMARY KEY (JoinId, MessageId));
    DECLARE @Advance NVARCHAR(MAX), @Written INT = 0;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Settle;

        INSERT INTO @Wanted (Seq, OwnerToken, Outcome, DueAt, Error, Held)
        SELECT CAST(s.value AS BIGINT), g.owner, g.outcome,
               DATEADD(MILLISECOND, g.delay_ms % 86400000, DATEADD(DAY, g.delay_ms / 86400000, @Now)), g.error, 0
        FROM (SELECT CAST(JSON_VALUE(a.value, '$.owner') AS UNIQUEIDENTIFIER) AS owner,
                     CAST(JSON_VALUE(a.value, '$.outcome') AS TINYINT) AS outcome,
                     CAST(JSON_VALUE(a.value, '$.delay_ms') AS BIGINT) AS delay_ms,
                     JSON_VALUE(a.value, '$.error') AS error, a.value
              FROM OPENJSON(@Arg, '$.groups') AS a) AS g
        CROSS APPLY OPENJSON(g.value, '$.seqs') AS s;

        IF @PassOver = 1
        BEGIN
            INSERT INTO @Free (Seq, OwnerToken, MessageId)
            SELECT o.Seq, o.OwnerToken, o.MessageId
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON o.Seq = w.Seq
            WHERE o.Status = 1 AND o.OwnerToken = w.OwnerToken
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            UPDATE w
            SET Held = 1, MessageId = f.MessageId
            FROM @Wanted AS w INNER JOIN @Free AS f ON f.Seq = w.Seq AND f.OwnerToken = w.OwnerToken
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        END
        ELSE
            UPDATE w
            SET Held = 1, MessageId = o.MessageId
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON o.Seq = w.Seq
            WHERE o.Status = 1 AND o.OwnerToken = w.OwnerToken
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        IF @DeleteAcked = 1
        BEGIN
            DELETE o
            FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, FORCESEEK) ON o.Seq = w.Seq
            WHERE w.Held = 1 AND w.Outcome = 0 AND o.Status = 1 AND o.OwnerToken = w.OwnerToken
              AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Kept] AS k WHERE k.MessageId = o.MessageId)
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            SET @Written = @@ROWCOUNT;
        END

        UPDATE o
        SET Status = CASE w.Outcome WHEN 0 THEN 2 WHEN 3 THEN 3 ELSE 0 END,
            OwnerToken = NULL,
            LockedUntil = NULL,
            RetryCount = o.RetryCount + CASE w.Outcome WHEN 1 THEN 1 ELSE 0 END,
            NextAttemptAt = CASE
                WHEN w.Outcome IN (0, 3) THEN o.NextAttemptAt
                WHEN w.DueAt IS NOT NULL THEN w.DueAt
                WHEN w.Outcome = 2 THEN @Now
                WHEN o.RetryCount >= 30 THEN DATEADD(MILLISECOND, @BackoffMax, @Now)
                WHEN @Backoff * POWER(CAST(2 AS BIGINT), o.RetryCount) > @BackoffMax THEN DATEADD(MILLISECOND, @BackoffMax, @Now)
                ELSE DATEADD(MILLISECOND, @Backoff * POWER(CAST(2 AS BIGINT), o.RetryCount), @Now) END,
            LastError = COALESCE(w.Error, o.LastError),
            ProcessedAt = CASE WHEN w.Outcome IN (0, 3) THEN @Now END,
            ProcessedBy = CASE WHEN w.Outcome IN (0, 3) THEN @Worker END
        FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, FORCESEEK) ON o.Seq = w.Seq
        WHERE w.Held = 1 AND o.Status = 1 AND o.OwnerToken = w.OwnerToken
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Written = @Written + @@ROWCOUNT;

        -- Never where UPDLOCK is heeded: elsewhere somebody can take a lease back between the look and the writing.
        IF @Written <> (SELECT COUNT(*) FROM @Wanted AS w WHERE w.Held = 1)
            THROW 51205, 'a lease was lost while it was settled; try again', 1;

        IF @PassOver = 1 -- apart, because READPAST is refused in some levels, and a caller's transaction may have one
            SELECT w.Seq, CAST(w.OwnerToken AS CHAR(36)), NULL,
                   CASE WHEN NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                                         WHERE o.Seq = w.Seq AND (o.OwnerToken IS NULL OR o.OwnerToken <> w.OwnerToken))
                         AND EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (NOLOCK, FORCESEEK) WHERE o.Seq = w.Seq)
                        THEN 1 END,
                   NULL, NULL, NULL
            FROM @Wanted AS w
            WHERE w.Held = 0
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        ELSE
            SELECT w.Seq, CAST(w.OwnerToken AS CHAR(36)), NULL, NULL, NULL, NULL, NULL FROM @Wanted AS w WHERE w.Held = 0;

        -- The tables of joins may be left out. The catalogue shows what the caller may see, and the history what is there: 4
        -- is the migration of joins.
        IF EXISTS (SELECT 1 FROM [dbo].[Outbox_Migrations] WHERE Version = 4)
        BEGIN
            -- Committed or not: a transaction that has started a join holds up nobody.
            IF EXISTS (SELECT 1 FROM [dbo].[OutboxJoin] WITH (NOLOCK))
            BEGIN
                INSERT INTO @Counted (JoinId, MessageId, Status)
                SELECT m.JoinId, m.OutboxMessageId, CASE w.Outcome WHEN 0 THEN 1 ELSE 2 END
                FROM @Wanted AS w
                INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON m.OutboxMessageId = w.MessageId
                WHERE w.Held = 1 AND w.Outcome IN (0, 3) AND m.Status = 0 AND m.EndsBy = 0
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

                UPDATE m
                SET Status = c.Status
                FROM @Counted AS c
                INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (ROWLOCK, FORCESEEK) ON m.JoinId = c.JoinId AND m.OutboxMessageId = c.MessageId
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

                SELECT @Advance = N'[' + STRING_AGG(CAST(N'{"id":"' + CAST(c.JoinId AS NVARCHAR(36)) + N'","done":' + CAST(c.Done AS NVARCHAR(10))
                    + N',"dead":' + CAST(c.Dead AS NVARCHAR(10)) + N'}' AS NVARCHAR(MAX)), N',') + N']'
                FROM (SELECT JoinId, COUNT(CASE Status WHEN 1 THEN 1 END) AS Done, COUNT(CASE Status WHEN 2 THEN 1 END) AS Dead
                      FROM @Counted GROUP BY JoinId) AS c;
                IF @Advance IS NOT NULL EXEC [dbo].[Outbox_Join_Advance] @Arg = @Advance;
            END
        END

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Settle;
        THROW;
    END CATCH
END
GO
