-- Removes a consumer group with its dead letters, so that it no longer holds up purging; returns from how many topics.
-- Dead letters go first, 1,000 at a time, each batch for itself unless the caller has a transaction. If it is interrupted, the
-- group is still there, and the next call goes on.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Forget]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Forget] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Forget]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @Topics INT, @Found INT = 1000;
    DECLARE @Batch TABLE (Position BIGINT NOT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, PRIMARY KEY (Position, Topic));

    BEGIN TRY
        WHILE @Found = 1000
        BEGIN
            DELETE FROM @Batch;
            INSERT INTO @Batch (Position, Topic)
            SELECT TOP (1000) d.Position, d.Topic
            FROM [dbo].[Outbox_Log_Dead] AS d WITH (FORCESEEK)
            WHERE d.GroupName = @Group
            ORDER BY d.Position, d.Topic
            OPTION (MAXDOP 1);
            SET @Found = @@ROWCOUNT;

            DELETE d
            FROM @Batch AS b INNER JOIN [dbo].[Outbox_Log_Dead] AS d WITH (ROWLOCK, FORCESEEK)
                ON d.GroupName = @Group AND d.Position = b.Position AND d.Topic = b.Topic
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        END

        BEGIN TRANSACTION;

        DELETE g FROM [dbo].[Outbox_Log_Group] AS g WITH (ROWLOCK, FORCESEEK) WHERE GroupName = @Group;
        SET @Topics = @@ROWCOUNT;

        SELECT CAST(@Topics AS BIGINT);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
