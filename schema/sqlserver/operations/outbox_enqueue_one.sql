-- Inserts one message like Outbox_Enqueue, from typed parameters, without JSON and table variables. A duplicate id ends the
-- statement, but not the caller's transaction.
IF OBJECT_ID(N'[dbo].[Outbox_Enqueue_One]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Enqueue_One] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Enqueue_One]
    @MessageId UNIQUEIDENTIFIER,
    @Uuid NVARCHAR(255),
    @Topic NVARCHAR(255),
    @TopicKey BIGINT,
    @Payload VARBINARY(MAX),
    @Headers NVARCHAR(MAX),
    @CorrelationId NVARCHAR(255),
    @StreamKey NVARCHAR(255),
    @DueMs BIGINT,
    @DelayMs BIGINT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @DueAt DATETIME2(3) =
        CASE WHEN @DueMs IS NOT NULL
             THEN DATEADD(MILLISECOND, @DueMs % 86400000, DATEADD(DAY, @DueMs / 86400000, CAST('1970-01-01' AS DATETIME2(3))))
             WHEN @DelayMs IS NOT NULL
             THEN DATEADD(MILLISECOND, @DelayMs % 86400000, DATEADD(DAY, @DelayMs / 86400000, @Now)) END;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Enqueue_One;

        INSERT INTO [dbo].[Outbox]
            (MessageId, Uuid, Topic, TopicKey, Payload, Headers, CorrelationId, StreamKey, CreatedAt, DueTimeUtc)
        VALUES (@MessageId, @Uuid, @Topic, @TopicKey, @Payload, @Headers, @CorrelationId, @StreamKey, @Now, @DueAt);

        INSERT INTO [dbo].[Outbox_State] (Seq, TopicKey, NextAttemptAt, Size)
        VALUES (CAST(SCOPE_IDENTITY() AS BIGINT), @TopicKey, CASE WHEN @DueAt > @Now THEN @DueAt ELSE @Now END,
                CAST(DATALENGTH(@Payload) + COALESCE(DATALENGTH(@Headers), 0) AS INT));

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Enqueue_One;
        THROW;
    END CATCH
END
GO
