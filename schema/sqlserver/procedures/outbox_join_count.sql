-- Counts ended messages in the joins whose steps they are, except steps that end by a report. Returns the joins that have
-- ended. Runs in the transaction of its caller, which holds their states; @Outer is how many transactions were open outside
-- that. A step is found without locks, and then locked by its key, so that it does not wait for an open transaction that has
-- attached one to end by a report.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Count]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Count] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Count]
    @Arg NVARCHAR(MAX),
    @Outer INT
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Advance NVARCHAR(MAX);
    DECLARE @Ended TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, Status TINYINT NOT NULL);
    DECLARE @Found TABLE (
        JoinId UNIQUEIDENTIFIER NOT NULL, MessageId UNIQUEIDENTIFIER NOT NULL, Status TINYINT NOT NULL, PRIMARY KEY (JoinId, MessageId));
    DECLARE @Counted TABLE (
        JoinId UNIQUEIDENTIFIER NOT NULL, MessageId UNIQUEIDENTIFIER NOT NULL, Status TINYINT NOT NULL, PRIMARY KEY (JoinId, MessageId));

    INSERT INTO @Ended (MessageId, Status)
    SELECT a.id, a.status FROM OPENJSON(@Arg) WITH (id UNIQUEIDENTIFIER '$.id', status TINYINT '$.status') AS a;

    INSERT INTO @Found (JoinId, MessageId, Status)
    SELECT DISTINCT m.JoinId, e.MessageId, e.Status
    FROM @Ended AS e INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (NOLOCK, FORCESEEK) ON m.OutboxMessageId = e.MessageId
    WHERE m.EndsBy = 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Counted (JoinId, MessageId, Status)
    SELECT f.JoinId, f.MessageId, f.Status
    FROM @Found AS f
    INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (UPDLOCK, REPEATABLEREAD, ROWLOCK, FORCESEEK) ON m.JoinId = f.JoinId AND m.OutboxMessageId = f.MessageId
    WHERE m.Status = 0 AND m.EndsBy = 0
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    IF @@ROWCOUNT = 0 RETURN;

    UPDATE m
    SET Status = c.Status
    FROM @Counted AS c
    INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (ROWLOCK, FORCESEEK) ON m.JoinId = c.JoinId AND m.OutboxMessageId = c.MessageId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT @Advance = N'[' + STRING_AGG(CAST(N'{"id":"' + CAST(c.JoinId AS NVARCHAR(36)) + N'","done":' + CAST(c.Done AS NVARCHAR(10))
        + N',"dead":' + CAST(c.Dead AS NVARCHAR(10)) + N'}' AS NVARCHAR(MAX)), N',') + N']'
    FROM (SELECT JoinId, COUNT(CASE Status WHEN 1 THEN 1 END) AS Done, COUNT(CASE Status WHEN 2 THEN 1 END) AS Dead
          FROM @Counted GROUP BY JoinId) AS c;
    EXEC [dbo].[Outbox_Join_Advance] @Arg = @Advance, @Outer = @Outer;
END
GO
