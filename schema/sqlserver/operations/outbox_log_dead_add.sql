-- Stores a message that a consumer group gives up, with the reason. If the group gave it up before, the row is updated. In
-- one transaction: HOLDLOCK keeps others from inserting the same row between the two statements.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Dead_Add]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Dead_Add] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Dead_Add]
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

    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Position BIGINT = CAST(JSON_VALUE(@Arg, '$.position') AS BIGINT);
    DECLARE @MessageId UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.message');
    DECLARE @Attempts INT = CAST(JSON_VALUE(@Arg, '$.attempts') AS INT);
    DECLARE @Reason NVARCHAR(MAX);
    SELECT @Reason = j.reason FROM OPENJSON(@Arg) WITH (reason NVARCHAR(MAX) '$.reason') AS j;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Log_Dead_Add;

        UPDATE d
        SET Attempts = @Attempts, Reason = @Reason, FailedAt = SYSUTCDATETIME(), Requeued = 0
        FROM [dbo].[Outbox_Log_Dead] AS d WITH (ROWLOCK, UPDLOCK, HOLDLOCK, FORCESEEK)
        WHERE GroupName = @Group AND Position = @Position AND Topic = @Topic
        OPTION (MAXDOP 1);

        IF @@ROWCOUNT = 0
            INSERT INTO [dbo].[Outbox_Log_Dead] (GroupName, Topic, Position, MessageId, Attempts, Reason)
            VALUES (@Group, @Topic, @Position, @MessageId, @Attempts, @Reason);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Log_Dead_Add;
        THROW;
    END CATCH
END
GO
