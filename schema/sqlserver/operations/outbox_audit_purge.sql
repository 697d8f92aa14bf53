-- Deletes up to limit records of what operators did that are older than older_than_ms; returns how many. Numbers grow with
-- time, so the oldest come first.
IF OBJECT_ID(N'[dbo].[Outbox_Audit_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Audit_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Audit_Purge]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @AgeMs BIGINT = CAST(JSON_VALUE(@Arg, '$.older_than_ms') AS BIGINT);
    DECLARE @Until DATETIME2(3) = DATEADD(MILLISECOND, -(@AgeMs % 86400000), DATEADD(DAY, -(@AgeMs / 86400000), SYSUTCDATETIME()));
    DECLARE @Found TABLE (AuditNo BIGINT NOT NULL PRIMARY KEY, HappenedAt DATETIME2(3) NOT NULL);

    INSERT INTO @Found (AuditNo, HappenedAt)
    SELECT TOP (@Limit) a.AuditNo, a.HappenedAt
    FROM [dbo].[Outbox_Audit] AS a WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE a.AuditNo > 0
    ORDER BY a.AuditNo
    OPTION (MAXDOP 1);
    DELETE FROM @Found WHERE HappenedAt > @Until;

    DELETE a
    FROM @Found AS f INNER JOIN [dbo].[Outbox_Audit] AS a WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON a.AuditNo = f.AuditNo
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT);
END
GO
