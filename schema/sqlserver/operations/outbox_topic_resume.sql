-- Resumes a paused topic; returns whether it was paused.
IF OBJECT_ID(N'[dbo].[Outbox_Topic_Resume]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Topic_Resume] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Topic_Resume]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Key BIGINT = CAST(JSON_VALUE(@Arg, '$.topic_key') AS BIGINT);

    DELETE p
    FROM [dbo].[Outbox_Paused] AS p WITH (ROWLOCK, FORCESEEK)
    WHERE p.TopicKey = @Key
    OPTION (MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIT);
END
GO
