-- Archives, deletes or restores a stream, if it has the expected version (as in Outbox_Event_Append). Returns one row: kind 1
-- if it was changed, or kind 2 with the stream's version. Deleting hides its events. Restoring shows them again, as far as they
-- were not purged, and opens an archived stream. A stream that has nothing to restore is changed, too.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Change]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Event_Change] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Event_Change]
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

    DECLARE @Stream NVARCHAR(255) = JSON_VALUE(@Arg, '$.stream');
    DECLARE @Expected BIGINT = CAST(JSON_VALUE(@Arg, '$.expected') AS BIGINT);
    DECLARE @Change INT = CASE JSON_VALUE(@Arg, '$.change') WHEN N'archive' THEN 1 WHEN N'delete' THEN 2 WHEN N'restore' THEN 3 END;
    DECLARE @Kind INT = 2, @Version BIGINT = 0;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Event_Change;

        UPDATE s
        SET Archived = CASE @Change WHEN 1 THEN 1 WHEN 3 THEN 0 ELSE s.Archived END,
            Hidden = CASE @Change WHEN 2 THEN s.Version WHEN 3 THEN s.Purged ELSE s.Hidden END
        FROM [dbo].[Outbox_Event_Stream] AS s WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE s.Name = @Stream
          AND (@Expected = -2 OR (@Expected = -1 AND s.Version > s.Hidden) OR (@Expected > 0 AND s.Version = @Expected AND s.Version > s.Hidden))
          AND (@Change = 3 OR s.Version > s.Hidden)
        OPTION (MAXDOP 1);
        IF @@ROWCOUNT > 0 SET @Kind = 1;

        SELECT @Version = CASE WHEN s.Version > s.Hidden THEN s.Version ELSE 0 END
        FROM [dbo].[Outbox_Event_Stream] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE s.Name = @Stream
        OPTION (MAXDOP 1);

        SELECT @Kind, @Version;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Event_Change;
        THROW;
    END CATCH
END
GO
