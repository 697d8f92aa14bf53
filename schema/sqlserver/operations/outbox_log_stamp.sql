-- Gives the next positions to up to limit committed messages, in order of Seq, and returns how many of each topic. The
-- counter is locked first, in a statement of its own. Then the highest pending Seq is read, and nothing above it is taken,
-- so that a message inserted meanwhile cannot overtake one that the same producer committed before.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Stamp]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Stamp] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Stamp]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Last BIGINT, @Highest BIGINT, @Count INT;
    DECLARE @Taken TABLE (
        Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL, Topic NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL);

    IF NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Pending] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE Seq > 0) RETURN;

    BEGIN TRY
        BEGIN TRANSACTION;

        SELECT @Last = Position FROM [dbo].[Outbox_Log_Counter] WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE Id = 1;

        SELECT @Highest = MAX(Seq) FROM [dbo].[Outbox_Log_Pending] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE Seq > 0;

        INSERT INTO @Taken (Seq, MessageId, Topic)
        SELECT TOP (@Limit) Seq, MessageId, Topic FROM [dbo].[Outbox_Log_Pending] WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
        WHERE Seq <= @Highest
        ORDER BY Seq
        OPTION (MAXDOP 1);
        SET @Count = @@ROWCOUNT;

        INSERT INTO [dbo].[Outbox_Log] (Position, Topic, MessageId)
        SELECT @Last + ROW_NUMBER() OVER (ORDER BY t.Seq), t.Topic, t.MessageId FROM @Taken AS t;

        UPDATE c SET Position = @Last + @Count FROM [dbo].[Outbox_Log_Counter] AS c WITH (ROWLOCK, FORCESEEK) WHERE Id = 1;

        DELETE p
        FROM @Taken AS t INNER JOIN [dbo].[Outbox_Log_Pending] AS p WITH (ROWLOCK, FORCESEEK) ON p.Seq = t.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        SELECT t.Topic, CAST(COUNT(*) AS BIGINT) FROM @Taken AS t GROUP BY t.Topic;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
