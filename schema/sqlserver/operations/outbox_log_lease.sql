-- Makes owner the one reader of a topic for a consumer group (take), or keeps it so, and moves the group on to position, but
-- never back. Answers with the group's position, and nothing while another has the lease, or, without take, where owner has
-- it no more. With lease_ms 0 it gives the lease back. The topic '' is the whole log.
-- Two that begin a group at once: the second finds the row, and inserts none.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Lease]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Lease] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Lease]
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

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Owner UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.owner');
    DECLARE @LeaseMs INT = CAST(JSON_VALUE(@Arg, '$.lease_ms') AS INT);
    DECLARE @Take BIT = CASE JSON_VALUE(@Arg, '$.take') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Position BIGINT = CAST(JSON_VALUE(@Arg, '$.position') AS BIGINT);
    DECLARE @Held TABLE (Position BIGINT NOT NULL);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Log_Lease;

        IF @Take = 1
            INSERT INTO [dbo].[Outbox_Log_Group] (GroupName, Topic)
            SELECT @Group, @Topic
            WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Group] WITH (UPDLOCK, HOLDLOCK) WHERE GroupName = @Group AND Topic = @Topic);

        UPDATE [dbo].[Outbox_Log_Group] WITH (ROWLOCK)
        SET Position = CASE WHEN OwnerToken = @Owner AND @Position > Position THEN @Position ELSE Position END,
            OwnerToken = CASE WHEN @LeaseMs > 0 THEN @Owner END,
            LockedUntil = CASE WHEN @LeaseMs > 0 THEN DATEADD(MILLISECOND, @LeaseMs, @Now) END
        OUTPUT inserted.Position INTO @Held (Position)
        WHERE GroupName = @Group AND Topic = @Topic
          AND (OwnerToken = @Owner OR (@Take = 1 AND (OwnerToken IS NULL OR LockedUntil < @Now)));

        SELECT Position FROM @Held;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Log_Lease;
        THROW;
    END CATCH
END
GO
