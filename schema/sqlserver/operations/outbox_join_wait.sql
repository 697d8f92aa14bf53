-- Records that a message waits for a join, and returns the state of the join; no row if there is none. While the join is
-- pending, the message is due again after recheck_ms or at its deadline, unless it is woken before: an unclaimed message is
-- put off here, a claimed one by its holder. The join is locked first, as when it ends, so that no wake-up is lost. It is
-- written to, so that ending it with an older snapshot is a conflict, and because a write locks on every server, whatever
-- happens to hints. If it has ended and the message is known to wait for it, it is not locked: it ends once, and what
-- follows may count in other joins.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Wait]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Wait] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Wait]
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
    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');
    DECLARE @Message UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.message');
    DECLARE @TimeoutMs BIGINT = CAST(JSON_VALUE(@Arg, '$.timeout_ms') AS BIGINT);
    DECLARE @RecheckMs BIGINT = CAST(JSON_VALUE(@Arg, '$.recheck_ms') AS BIGINT);
    DECLARE @Claimed BIT = CASE JSON_VALUE(@Arg, '$.claimed') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Status INT, @Known BIT = 0, @Seq BIGINT, @Free BIGINT, @Deadline DATETIME2(3), @Again DATETIME2(3);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Join_Wait;

        SELECT @Status = Status FROM [dbo].[OutboxJoin] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id;
        SELECT @Known = 1, @Deadline = DeadlineUtc FROM [dbo].[OutboxJoinWait] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id AND OutboxMessageId = @Message;

        IF @Status = 0 OR @Known = 0
        BEGIN
            UPDATE j SET LastUpdatedUtc = LastUpdatedUtc FROM [dbo].[OutboxJoin] AS j WITH (ROWLOCK, FORCESEEK) WHERE JoinId = @Id;
            SET @Status = NULL;
            SELECT @Status = Status FROM [dbo].[OutboxJoin] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id;
        END

        IF @Status IS NOT NULL
        BEGIN
            IF @Known = 0
                INSERT INTO [dbo].[OutboxJoinWait] (JoinId, OutboxMessageId, DeadlineUtc)
                SELECT @Id, @Message, DATEADD(MILLISECOND, @TimeoutMs % 86400000, DATEADD(DAY, @TimeoutMs / 86400000, @Now))
                WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoinWait] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id AND OutboxMessageId = @Message);

            IF @Known = 0
                SELECT @Deadline = DeadlineUtc FROM [dbo].[OutboxJoinWait] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id AND OutboxMessageId = @Message;
            SET @Again = DATEADD(MILLISECOND, @RecheckMs % 86400000, DATEADD(DAY, @RecheckMs / 86400000, @Now));
            IF @Deadline < @Again SET @Again = @Deadline;

            IF @Status = 0 AND @Claimed = 0
            BEGIN
                SELECT @Seq = Seq FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE MessageId = @Message;
                -- The join is locked, and settling locks messages before joins: a locked message is left as it is. It is
                -- then delivered once more than necessary, sees that the join is pending, and is parked by its handler.
                SELECT @Free = Seq FROM [dbo].[Outbox_State] WITH (UPDLOCK, READPAST, REPEATABLEREAD, ROWLOCK, FORCESEEK)
                WHERE Seq = @Seq
                OPTION (MAXDOP 1);
                UPDATE s SET NextAttemptAt = @Again FROM [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK) WHERE Seq = @Free AND Status = 0;
            END

            SELECT CAST(j.Status AS INT), j.ExpectedSteps, j.CompletedSteps, j.FailedSteps,
                   CAST(CASE WHEN j.FailFast = 1 OR j.Quorum IS NOT NULL THEN 1 ELSE 0 END AS BIT),
                   CAST(CASE WHEN @Deadline <= @Now THEN 1 ELSE 0 END AS BIT),
                   CASE WHEN @Again > @Now THEN DATEDIFF_BIG(MILLISECOND, @Now, @Again) ELSE CAST(1 AS BIGINT) END
            FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE j.JoinId = @Id;
        END

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Join_Wait;
        THROW;
    END CATCH
END
GO
