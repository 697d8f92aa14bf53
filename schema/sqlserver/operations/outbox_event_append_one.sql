-- Appends one event, for the log alone and without an id of the caller's, to a stream that exists, like Outbox_Event_Append but
-- from typed parameters, without JSON. Returns its version, or nothing if the stream's row was not moved, for whatever reason.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Append_One]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Event_Append_One] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Event_Append_One]
    @Stream NVARCHAR(255),
    @Expected BIGINT,
    @MessageId UNIQUEIDENTIFIER,
    @Uuid NVARCHAR(255),
    @Topic NVARCHAR(255),
    @TopicKey BIGINT,
    @Payload VARBINARY(MAX),
    @Headers NVARCHAR(MAX),
    @CorrelationId NVARCHAR(255),
    @StreamKey NVARCHAR(255),
    @StreamId BIGINT
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

    DECLARE @StreamNo BIGINT, @Version BIGINT, @Seq BIGINT;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Event_Append_One;

        UPDATE s
        SET Version = s.Version + 1
        FROM [dbo].[Outbox_Event_Stream] AS s WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE s.Name = @Stream AND s.Archived = 0
          AND (@Expected = -2 OR (@Expected = -1 AND s.Version > s.Hidden) OR (@Expected = 0 AND s.Version = s.Hidden)
               OR (@Expected > 0 AND s.Version = @Expected AND s.Version > s.Hidden))
        OPTION (MAXDOP 1);

        IF @@ROWCOUNT > 0
        BEGIN
            SELECT @StreamNo = s.StreamNo, @Version = s.Version
            FROM [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE s.Name = @Stream
            OPTION (MAXDOP 1);
            SET @Headers = STUFF(@Headers, 1, 1, N'{"outbox_event_version":"' + CAST(@Version AS NVARCHAR(20)) + N'",');

            INSERT INTO [dbo].[Outbox]
                (MessageId, Uuid, Topic, TopicKey, Payload, Headers, CorrelationId, StreamKey, StreamId, CreatedAt)
            VALUES (@MessageId, @Uuid, @Topic, @TopicKey, @Payload, @Headers, @CorrelationId, @StreamKey, @StreamId, SYSUTCDATETIME());
            SET @Seq = CAST(SCOPE_IDENTITY() AS BIGINT);

            INSERT INTO [dbo].[Outbox_Event] (StreamNo, Version, Seq, Size)
            VALUES (@StreamNo, @Version, @Seq, CAST(DATALENGTH(@Payload) + DATALENGTH(@Headers) AS INT));

            INSERT INTO [dbo].[Outbox_Log_Pending] (Seq, MessageId, Topic) VALUES (@Seq, @MessageId, @Topic);
        END

        SELECT @Version WHERE @Version IS NOT NULL;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Event_Append_One;
        THROW;
    END CATCH
END
GO
