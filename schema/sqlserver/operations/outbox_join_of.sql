-- The joins that have a message as a step, with the step's state and theirs.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Of]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Of] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Of]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Of TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    INSERT INTO @Of (JoinId)
    SELECT TOP (@Limit) m.JoinId
    FROM [dbo].[OutboxJoinMember] AS m WITH (FORCESEEK)
    WHERE m.OutboxMessageId = @Id
    OPTION (MAXDOP 1);

    SELECT CAST(o.JoinId AS CHAR(36)), CAST(m.Status AS INT), CAST(m.EndsBy AS BIT),
           DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), m.CreatedUtc), CAST(j.Status AS INT), j.GroupingKey
    FROM @Of AS o
    INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (FORCESEEK) ON m.JoinId = o.JoinId AND m.OutboxMessageId = @Id
    INNER JOIN [dbo].[OutboxJoin] AS j WITH (FORCESEEK) ON j.JoinId = o.JoinId
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
