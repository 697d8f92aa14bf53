-- Marks an entry as processed, with what its handler has answered; answers whether there is one.
IF OBJECT_ID(N'[dbo].[Outbox_Entry_Save]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Entry_Save] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Entry_Save]
    @Arg NVARCHAR(MAX),
    @Result VARBINARY(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Handler NVARCHAR(255) = JSON_VALUE(@Arg, '$.handler');
    DECLARE @Source NVARCHAR(255) = JSON_VALUE(@Arg, '$.source');
    DECLARE @MessageId NVARCHAR(255) = JSON_VALUE(@Arg, '$.message_id');

    UPDATE e
    SET ProcessedAt = COALESCE(ProcessedAt, SYSUTCDATETIME()), Result = @Result
    FROM [dbo].[OutboxEntry] AS e WITH (ROWLOCK, FORCESEEK)
    WHERE Handler = @Handler AND Source = @Source AND MessageId = @MessageId;

    SELECT CAST(@@ROWCOUNT AS BIGINT);
END
GO
