-- Reads a page of the steps of a join, in order of message id after a given one.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Members]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Members] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Members]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');
    DECLARE @After UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.after');
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);

    SELECT TOP (@Limit) CAST(m.OutboxMessageId AS CHAR(36)), CAST(m.EndsBy AS BIT), CAST(m.Status AS INT),
           DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), m.CreatedUtc)
    FROM [dbo].[OutboxJoinMember] AS m WITH (READCOMMITTED, FORCESEEK)
    WHERE m.JoinId = @Id AND (@After IS NULL OR m.OutboxMessageId > @After)
    ORDER BY m.OutboxMessageId
    OPTION (RECOMPILE, MAXDOP 1);
END
GO
