-- Makes owner the only reader of a topic for a consumer group (take), or renews that, and moves the group on to position,
-- but never back. A reader with a higher version takes the lease from one with a lower version at once. Returns the state of
-- the group, held or not, and the last position given; without take, nothing if there is no such group. With lease_ms 0 it
-- gives the lease back; with take and lease_ms 0 it creates the group, and leaves one that there is alone. The topic '' is the
-- whole log. A group is moved only from where its reader believes it to be, to a message in the log. Otherwise the database is
-- older than the reader, and messages that have been given the reader's positions since are yet to be read. With once, nothing
-- is done and returned if the group has passed the position: of two transactions that move it there, one succeeds.
-- If two readers start a group at the same time, the second finds the row and inserts none.
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
    DECLARE @From BIGINT = CAST(JSON_VALUE(@Arg, '$.from') AS BIGINT);
    DECLARE @Position BIGINT = CAST(JSON_VALUE(@Arg, '$.position') AS BIGINT);
    DECLARE @MessageId UNIQUEIDENTIFIER = NULLIF(JSON_VALUE(@Arg, '$.message'), N'');
    DECLARE @Tried BIGINT = CAST(JSON_VALUE(@Arg, '$.tried') AS BIGINT);
    DECLARE @Attempts INT = CAST(JSON_VALUE(@Arg, '$.attempts') AS INT);
    DECLARE @Version BIGINT = CAST(JSON_VALUE(@Arg, '$.version') AS BIGINT);
    DECLARE @Shape BIGINT = CAST(JSON_VALUE(@Arg, '$.shape') AS BIGINT);
    DECLARE @Once BIT = CASE JSON_VALUE(@Arg, '$.once') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Updated INT;
    DECLARE @Last BIGINT;
    DECLARE @There BIT = 1;

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Log_Lease;

        IF @Take = 1
            INSERT INTO [dbo].[Outbox_Log_Group] (GroupName, Topic)
            SELECT @Group, @Topic
            WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Group] WITH (UPDLOCK, HOLDLOCK, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic);

        SELECT @Last = Position FROM [dbo].[Outbox_Log_Counter] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE Id = 1;

        IF @MessageId IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE Position = @Position AND MessageId = @MessageId)
            SET @There = 0;

        UPDATE g
        SET Position = CASE WHEN OwnerToken = @Owner AND @There = 1 AND @Position <= @Last AND Position >= @From AND @Position > Position
                            THEN @Position ELSE Position END,
            Tried = CASE WHEN OwnerToken = @Owner AND @Tried > 0 THEN @Tried ELSE Tried END,
            Attempts = CASE WHEN OwnerToken = @Owner AND @Tried > 0 THEN @Attempts ELSE Attempts END,
            Version = @Version,
            Shape = @Shape,
            Interrupted = CASE WHEN OwnerToken <> @Owner THEN 1 WHEN OwnerToken = @Owner AND Position < @Position THEN 0 ELSE Interrupted END,
            OwnerToken = CASE WHEN @LeaseMs > 0 THEN @Owner END,
            LockedUntil = CASE WHEN @LeaseMs > 0 THEN DATEADD(MILLISECOND, @LeaseMs, @Now) END
        FROM [dbo].[Outbox_Log_Group] AS g WITH (ROWLOCK, FORCESEEK)
        WHERE GroupName = @Group AND Topic = @Topic
          AND (OwnerToken = @Owner OR (@Take = 1 AND @LeaseMs > 0 AND (OwnerToken IS NULL OR LockedUntil < @Now OR Version < @Version)))
          AND (@Once = 0 OR Position < @Position);
        SET @Updated = @@ROWCOUNT;

        SELECT CAST(CASE WHEN OwnerToken = @Owner THEN 1 ELSE 0 END AS BIT), Position, @Last, Tried, Attempts, Version, Shape, Interrupted
        FROM [dbo].[Outbox_Log_Group] WITH (READCOMMITTEDLOCK, FORCESEEK)
        WHERE GroupName = @Group AND Topic = @Topic AND (@Once = 0 OR @Updated > 0);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Log_Lease;
        THROW;
    END CATCH
END
GO
