-- Closes an open join: it expects the steps that it has, and ends if they all have ended. A sealed join stays as it is.
-- Returns a refusal (seq -1 no such join, -2 it has ended), or the join if it has ended. It waits for the row of the size,
-- and writes to it so that attaching with an older snapshot fails: a transaction that attaches is counted entirely or not at
-- all.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Seal]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Seal] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Seal]
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

    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');
    DECLARE @Attached INT, @Expected INT, @Status INT, @Advance NVARCHAR(MAX);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Join_Seal;

        UPDATE z SET Attached = Attached FROM [dbo].[OutboxJoinSize] AS z WITH (ROWLOCK, FORCESEEK) WHERE JoinId = @Id;
        SELECT @Attached = Attached FROM [dbo].[OutboxJoinSize] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id;
        SELECT @Expected = ExpectedSteps, @Status = Status FROM [dbo].[OutboxJoin] WITH (UPDLOCK, REPEATABLEREAD, ROWLOCK, FORCESEEK) WHERE JoinId = @Id;

        IF @Status IS NULL OR @Status <> 0
            SELECT CASE WHEN @Status IS NULL THEN CAST(-1 AS BIGINT) ELSE CAST(-2 AS BIGINT) END, CAST(@Id AS CHAR(36)), NULL, NULL, NULL, NULL, NULL;
        ELSE IF @Expected IS NULL
        BEGIN
            UPDATE j SET ExpectedSteps = @Attached FROM [dbo].[OutboxJoin] AS j WITH (ROWLOCK, FORCESEEK) WHERE JoinId = @Id;
            SET @Advance = N'[{"id":"' + CAST(@Id AS NVARCHAR(36)) + N'","done":0,"dead":0}]';
            EXEC [dbo].[Outbox_Join_Advance] @Arg = @Advance, @Outer = @Outer;
        END

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Join_Seal;
        THROW;
    END CATCH
END
GO
