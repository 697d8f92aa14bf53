-- Reads joins: the one with an id; or a page of those with a grouping key or of those that are pending, in order of id after a
-- given one; or of all, from the newest on, before a given one. A page is found by one index alone, and read by id, because a
-- delete locks the row first and its keys after that. One plan for all cases would look at every join, and wait for each
-- locked one. Pages of pending joins and of all pass over locked rows.
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
    DECLARE @Before UNIQUEIDENTIFIER = COALESCE(CAST(JSON_VALUE(@Arg, '$.before') AS UNIQUEIDENTIFIER), 'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF');
    DECLARE @Newest BIT = CASE WHEN JSON_VALUE(@Arg, '$.newest') = 'true' THEN 1 ELSE 0 END;
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);

    DECLARE @Page TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    IF @Id IS NOT NULL
        INSERT INTO @Page (JoinId) VALUES (@Id);
    ELSE IF @GroupingKey IS NOT NULL
        INSERT INTO @Page (JoinId)
        SELECT TOP (@Limit) j.JoinId
        FROM [dbo].[OutboxJoin] AS j WITH (FORCESEEK)
        WHERE j.GroupingKey IS NOT NULL AND j.GroupingKey = @GroupingKey AND (@After IS NULL OR j.JoinId > @After)
        ORDER BY j.JoinId
        OPTION (RECOMPILE, MAXDOP 1);
    ELSE IF @Newest = 0
        INSERT INTO @Page (JoinId)
        SELECT TOP (@Limit) j.JoinId
        FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE j.Status = 0 AND j.JoinId > COALESCE(@After, '00000000-0000-0000-0000-000000000000')
        ORDER BY j.JoinId
        OPTION (MAXDOP 1);
    ELSE
        INSERT INTO @Page (JoinId)
        SELECT TOP (@Limit) j.JoinId
        FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE j.JoinId < @Before
        ORDER BY j.JoinId DESC
        OPTION (MAXDOP 1);

    SELECT CAST(j.JoinId AS CHAR(36)), j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Quorum,
           j.FailFast, CAST(j.Status AS INT), j.Metadata,
           DATEDIFF_BIG(MILLISECOND, @Epoch, j.CreatedUtc), DATEDIFF_BIG(MILLISECOND, @Epoch, j.LastUpdatedUtc)
    FROM @Page AS p INNER JOIN [dbo].[OutboxJoin] AS j WITH (FORCESEEK) ON j.JoinId = p.JoinId
    ORDER BY CASE WHEN @Newest = 0 THEN p.JoinId END, p.JoinId DESC
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
