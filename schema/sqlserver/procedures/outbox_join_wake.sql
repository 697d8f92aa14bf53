-- Makes messages due whose join ended while they were locked, or in a caller's transaction: see Outbox_Join_Advance. One
-- that has been claimed since notices the end of its join by itself. Part of a claim's own transaction, at READ COMMITTED.
-- It waits for nobody: locked messages are left for another claim. It looks at a hundred notes; of more, at any hundred, so that
-- messages that stay locked do not hide the others.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Wake]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Wake] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Wake]
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @First BIGINT, @Last BIGINT, @From BIGINT;
    DECLARE @Wakes TABLE (WakeId BIGINT NOT NULL PRIMARY KEY, Seq BIGINT NOT NULL);
    DECLARE @Seqs TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @Free TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    SELECT TOP (1) @First = WakeId FROM [dbo].[Outbox_Wake] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE WakeId > 0
    ORDER BY WakeId
    OPTION (MAXDOP 1);

    SELECT TOP (1) @Last = WakeId FROM [dbo].[Outbox_Wake] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE WakeId >= @First
    ORDER BY WakeId DESC
    OPTION (MAXDOP 1);

    SET @From = @First + 100 * ABS(CHECKSUM(NEWID()) % ((@Last - @First) / 100 + 1));

    INSERT INTO @Wakes (WakeId, Seq)
    SELECT TOP (100) WakeId, Seq FROM [dbo].[Outbox_Wake] WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
    WHERE WakeId >= @From
    ORDER BY WakeId
    OPTION (MAXDOP 1);
    IF @@ROWCOUNT = 0 RETURN;

    INSERT INTO @Seqs (Seq) SELECT DISTINCT Seq FROM @Wakes;

    INSERT INTO @Free (Seq)
    SELECT s.Seq
    FROM @Seqs AS w INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON s.Seq = w.Seq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    UPDATE s
    SET NextAttemptAt = @Now
    FROM @Free AS f INNER JOIN [dbo].[Outbox_State] AS s WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = f.Seq
    WHERE s.Status = 0 AND s.NextAttemptAt > @Now
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    DELETE k
    FROM @Wakes AS w INNER JOIN [dbo].[Outbox_Wake] AS k WITH (ROWLOCK, FORCESEEK) ON k.WakeId = w.WakeId
    WHERE EXISTS (SELECT 1 FROM @Free AS f WHERE f.Seq = w.Seq)
       OR NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) WHERE s.Seq = w.Seq)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
