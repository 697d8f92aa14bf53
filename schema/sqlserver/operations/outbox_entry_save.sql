-- Marks an entry as processed, with its handler's result; returns whether it exists. It is found by key and written by Seq,
-- because a delete locks the row first and its other keys after that.
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
    DECLARE @Seq BIGINT;

    SELECT @Seq = Seq FROM [dbo].[OutboxEntry] WITH (READCOMMITTEDLOCK, FORCESEEK)
    WHERE Handler = @Handler AND Source = @Source AND MessageId = @MessageId
    OPTION (MAXDOP 1);

    UPDATE e
    SET ProcessedAt = COALESCE(e.ProcessedAt, SYSUTCDATETIME()), Result = @Result
    FROM [dbo].[OutboxEntry] AS e WITH (ROWLOCK, FORCESEEK)
    WHERE e.Seq = @Seq
    OPTION (MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT);
END
GO
