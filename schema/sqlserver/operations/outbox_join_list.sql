-- Joins as they stand: the one with an id, or a page of those with a grouping key, in order of id after a given one.
IF OBJECT_ID(N'[dbo].[Outbox_Join_List]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_List] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_List]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');
    DECLARE @GroupingKey NVARCHAR(255) = JSON_VALUE(@Arg, '$.grouping_key');
    DECLARE @After UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.after');
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);

    SELECT TOP (@Limit) CAST(j.JoinId AS CHAR(36)), j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Quorum,
           j.FailFast, CAST(j.Status AS INT), j.Metadata,
           DATEDIFF_BIG(MILLISECOND, @Epoch, j.CreatedUtc), DATEDIFF_BIG(MILLISECOND, @Epoch, j.LastUpdatedUtc)
    FROM [dbo].[OutboxJoin] AS j
    WHERE j.JoinId = @Id
       OR (j.GroupingKey IS NOT NULL AND j.GroupingKey = @GroupingKey AND (@After IS NULL OR j.JoinId > @After))
    ORDER BY j.JoinId
    OPTION (RECOMPILE);
END
GO
