-- Keeps a message that a consumer group gives up, with the reason. A group that had it before gives it up once more.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Dead_Add]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Dead_Add] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Dead_Add]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Position BIGINT = CAST(JSON_VALUE(@Arg, '$.position') AS BIGINT);
    DECLARE @MessageId UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.message');
    DECLARE @Attempts INT = CAST(JSON_VALUE(@Arg, '$.attempts') AS INT);
    DECLARE @Reason NVARCHAR(MAX);
    SELECT @Reason = j.reason FROM OPENJSON(@Arg) WITH (reason NVARCHAR(MAX) '$.reason') AS j;

    UPDATE d
    SET Attempts = @Attempts, Reason = @Reason, FailedAt = SYSUTCDATETIME(), Requeued = 0
    FROM [dbo].[Outbox_Log_Dead] AS d WITH (ROWLOCK, UPDLOCK, HOLDLOCK, FORCESEEK)
    WHERE GroupName = @Group AND Position = @Position AND Topic = @Topic;

    IF @@ROWCOUNT = 0
        INSERT INTO [dbo].[Outbox_Log_Dead] (GroupName, Topic, Position, MessageId, Attempts, Reason)
        VALUES (@Group, @Topic, @Position, @MessageId, @Attempts, @Reason);
END
GO
