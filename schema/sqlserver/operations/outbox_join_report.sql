-- Ends a step by report, in one join or, without an id, in all that have it; a second report changes nothing. Returns a
-- refusal (seq -1 no such join, -5 the message is no step of it) or the joins that have ended.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Report]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Report] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Report]
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
    DECLARE @Step UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.message');
    DECLARE @Dead INT = CASE JSON_VALUE(@Arg, '$.failed') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Advance NVARCHAR(MAX);
    DECLARE @Found TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Counted TABLE (JoinId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Join_Report;

        IF @Id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoinMember] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id AND OutboxMessageId = @Step)
            SELECT CASE WHEN EXISTS (SELECT 1 FROM [dbo].[OutboxJoin] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id) THEN CAST(-5 AS BIGINT) ELSE CAST(-1 AS BIGINT) END,
                   CAST(@Id AS CHAR(36)), NULL, NULL, NULL, NULL, NULL;

        INSERT INTO @Found (JoinId)
        SELECT m.JoinId
        FROM [dbo].[OutboxJoinMember] AS m WITH (READCOMMITTEDLOCK, FORCESEEK)
        WHERE m.OutboxMessageId = @Step AND (@Id IS NULL OR m.JoinId = @Id)
        OPTION (MAXDOP 1);

        UPDATE m
        SET Status = 1 + @Dead
        OUTPUT inserted.JoinId INTO @Counted (JoinId)
        FROM @Found AS f INNER JOIN [dbo].[OutboxJoinMember] AS m WITH (ROWLOCK, FORCESEEK) ON m.JoinId = f.JoinId AND m.OutboxMessageId = @Step
        WHERE m.Status = 0
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        IF EXISTS (SELECT 1 FROM @Counted)
        BEGIN
            SELECT @Advance = N'[' + STRING_AGG(CAST(N'{"id":"' + CAST(JoinId AS NVARCHAR(36)) + N'","done":' + CAST(1 - @Dead AS NVARCHAR(1))
                + N',"dead":' + CAST(@Dead AS NVARCHAR(1)) + N'}' AS NVARCHAR(MAX)), N',') + N']'
            FROM @Counted;
            EXEC [dbo].[Outbox_Join_Advance] @Arg = @Advance, @Outer = @Outer;
        END

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Join_Report;
        THROW;
    END CATCH
END
GO
