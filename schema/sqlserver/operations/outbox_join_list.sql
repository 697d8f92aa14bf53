-- Reads joins: the one with an id; or a page of those with a grouping key or of those that are pending, in order of id after a
-- given one; or of all, from the newest on, before a given one. A page is found by one index alone, and read by id, because a
-- delete locks the row first and its keys after that. One plan for all cases would look at every join, and wait for each
-- locked one. Pages of pending joins and of all pass over locked rows. Joins are read one in a statement: one that returns a
-- large column keeps the locks of its rows to its end, and would hold some joins while it waits for another.
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
    DECLARE @Joins TABLE (
        JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, GroupingKey NVARCHAR(255) NULL, ExpectedSteps INT NULL, CompletedSteps INT NOT NULL,
        FailedSteps INT NOT NULL, Quorum INT NULL, FailFast BIT NOT NULL, Status INT NOT NULL, Metadata NVARCHAR(MAX) NULL,
        CreatedUtc DATETIME2(3) NOT NULL, LastUpdatedUtc DATETIME2(3) NOT NULL);
    DECLARE @Next UNIQUEIDENTIFIER;

    IF @Id IS NOT NULL
        INSERT INTO @Page (JoinId) VALUES (@Id);
    ELSE IF @GroupingKey IS NOT NULL
        INSERT INTO @Page (JoinId)
        SELECT TOP (@Limit) j.JoinId
        FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTED, FORCESEEK)
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

    SET @Next = (SELECT TOP (1) p.JoinId FROM @Page AS p ORDER BY p.JoinId);
    WHILE @Next IS NOT NULL
    BEGIN
        INSERT INTO @Joins
            (JoinId, GroupingKey, ExpectedSteps, CompletedSteps, FailedSteps, Quorum, FailFast, Status, Metadata, CreatedUtc, LastUpdatedUtc)
        SELECT j.JoinId, j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Quorum, j.FailFast, j.Status, j.Metadata, j.CreatedUtc,
               j.LastUpdatedUtc
        FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTED, FORCESEEK)
        WHERE j.JoinId = @Next
        OPTION (MAXDOP 1);
        SET @Next = (SELECT TOP (1) p.JoinId FROM @Page AS p WHERE p.JoinId > @Next ORDER BY p.JoinId);
    END

    SELECT CAST(j.JoinId AS CHAR(36)), j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Quorum,
           j.FailFast, j.Status, j.Metadata,
           DATEDIFF_BIG(MILLISECOND, @Epoch, j.CreatedUtc), DATEDIFF_BIG(MILLISECOND, @Epoch, j.LastUpdatedUtc)
    FROM @Joins AS j
    ORDER BY CASE WHEN @Newest = 0 THEN j.JoinId END, j.JoinId DESC;
END
GO
