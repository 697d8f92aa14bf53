-- Begins a join with counters of zero. Without expected it is open: steps are added until it is sealed.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Start]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Start] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Start]
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

    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Join_Start;

        INSERT INTO [dbo].[OutboxJoin] (JoinId, GroupingKey, ExpectedSteps, Quorum, FailFast, Metadata)
        SELECT @Id, a.grouping_key, a.expected, a.quorum, a.fail_fast, a.metadata
        FROM OPENJSON(@Arg) WITH (
                 grouping_key NVARCHAR(255) '$.grouping_key', expected INT '$.expected', quorum INT '$.quorum',
                 fail_fast BIT '$.fail_fast', metadata NVARCHAR(MAX) '$.metadata') AS a;
        INSERT INTO [dbo].[OutboxJoinSize] (JoinId) VALUES (@Id);

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Join_Start;
        THROW;
    END CATCH
END
GO
