-- Deletes the attempts of messages, in batches: a message may have many, and thousands of locks of one statement escalate.
-- Part of its caller's own transaction, at READ COMMITTED, which holds the messages' states. It waits for nobody: attempts
-- that another transaction has locked stay.
IF OBJECT_ID(N'[dbo].[Outbox_Attempt_Purge]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Attempt_Purge] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Attempt_Purge]
    @Seqs NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Count INT = 1;
    DECLARE @Messages TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Attempts TABLE (Seq BIGINT NOT NULL, AttemptId BIGINT NOT NULL, PRIMARY KEY (Seq, AttemptId));

    INSERT INTO @Messages (Seq) SELECT DISTINCT CAST(i.value AS BIGINT) FROM OPENJSON(@Seqs) AS i;

    WHILE @Count > 0
    BEGIN
        DELETE FROM @Attempts;
        INSERT INTO @Attempts (Seq, AttemptId)
        SELECT TOP (1000) a.Seq, a.AttemptId
        FROM @Messages AS m INNER JOIN [dbo].[Outbox_Attempt] AS a WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON a.Seq = m.Seq
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        DELETE a
        FROM @Attempts AS t INNER JOIN [dbo].[Outbox_Attempt] AS a WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK)
             ON a.Seq = t.Seq AND a.AttemptId = t.AttemptId
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @Count = @@ROWCOUNT;
    END
END
GO
