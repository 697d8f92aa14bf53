-- Records what an operator has done, in the same transaction. The first batch of an act gets a number; the others pass it and
-- add to the count.
IF OBJECT_ID(N'[dbo].[Outbox_Audit_Add]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Audit_Add] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Audit_Add]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @No BIGINT = CAST(JSON_VALUE(@Arg, '$.no') AS BIGINT);
    DECLARE @Affected INT = CAST(JSON_VALUE(@Arg, '$.affected') AS INT);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Audit_Add;

        IF @No IS NULL
        BEGIN
            INSERT INTO [dbo].[Outbox_Audit] (Actor, Act, Selection, Affected)
            SELECT j.actor, j.act, j.selection, @Affected
            FROM OPENJSON(@Arg) WITH (actor NVARCHAR(255) '$.by', act NVARCHAR(100) '$.act', selection NVARCHAR(2000) '$.selection') AS j;
            SET @No = CAST(SCOPE_IDENTITY() AS BIGINT);
        END
        ELSE
            UPDATE a
            SET Affected = a.Affected + @Affected
            FROM [dbo].[Outbox_Audit] AS a WITH (ROWLOCK, FORCESEEK)
            WHERE a.AuditNo = @No
            OPTION (MAXDOP 1);

        SELECT @No;

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Audit_Add;
        THROW;
    END CATCH
END
GO
