-- Pauses a topic: nothing of it is claimed once this is committed, or even written. If it is paused already, only who did it
-- and why change, not since when.
IF OBJECT_ID(N'[dbo].[Outbox_Topic_Pause]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Topic_Pause] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Topic_Pause]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Key BIGINT = CAST(JSON_VALUE(@Arg, '$.topic_key') AS BIGINT);
    DECLARE @Topic NVARCHAR(255), @By NVARCHAR(255), @Reason NVARCHAR(1000);
    SELECT @Topic = j.topic, @By = j.actor, @Reason = j.reason
    FROM OPENJSON(@Arg) WITH (topic NVARCHAR(255) '$.topic', actor NVARCHAR(255) '$.by', reason NVARCHAR(1000) '$.reason') AS j;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Topic_Pause;

        UPDATE p
        SET PausedBy = @By, Reason = @Reason
        FROM [dbo].[Outbox_Paused] AS p WITH (ROWLOCK, UPDLOCK, HOLDLOCK, FORCESEEK)
        WHERE p.TopicKey = @Key
        OPTION (MAXDOP 1);
        IF @@ROWCOUNT = 0
            INSERT INTO [dbo].[Outbox_Paused] (TopicKey, Topic, PausedBy, Reason)
            VALUES (@Key, @Topic, @By, @Reason);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Topic_Pause;
        THROW;
    END CATCH
END
GO
