-- Lists what operators have done, the latest first: up to limit before a number.
IF OBJECT_ID(N'[dbo].[Outbox_Audit_List]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Audit_List] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Audit_List]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Before BIGINT = COALESCE(CAST(JSON_VALUE(@Arg, '$.before') AS BIGINT), 9223372036854775807);

    SELECT TOP (@Limit) a.AuditNo, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), a.HappenedAt), a.Actor, a.Act, a.Selection, a.Affected
    FROM [dbo].[Outbox_Audit] AS a WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE a.AuditNo < @Before
    ORDER BY a.AuditNo DESC
    OPTION (MAXDOP 1);
END
GO
