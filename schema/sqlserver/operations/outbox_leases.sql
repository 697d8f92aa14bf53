-- Leases, those that run longest first, with their worker and the topics of what they hold. Of each lease the first sample
-- messages are looked at. Rows that others have locked are left out.
IF OBJECT_ID(N'[dbo].[Outbox_Leases]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Leases] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Leases]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Sample INT = CAST(JSON_VALUE(@Arg, '$.sample') AS INT);
    DECLARE @Found TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Held TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, WorkerId INT NOT NULL, LockedUntil DATETIME2(3) NOT NULL, Seqs NVARCHAR(MAX) NOT NULL);
    DECLARE @Looked TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL, Seq BIGINT NOT NULL, PRIMARY KEY (OwnerToken, Seq));
    DECLARE @Topics TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL, FirstSeq BIGINT NOT NULL, Messages BIGINT NOT NULL, PRIMARY KEY (OwnerToken, FirstSeq));

    INSERT INTO @Found (OwnerToken)
    SELECT TOP (@Limit) l.OwnerToken
    FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE l.LockedUntil > CAST('0001-01-01' AS DATETIME2(3))
    ORDER BY l.LockedUntil DESC
    OPTION (MAXDOP 1);

    INSERT INTO @Held (OwnerToken, WorkerId, LockedUntil, Seqs)
    SELECT l.OwnerToken, l.WorkerId, l.LockedUntil, l.Seqs
    FROM @Found AS f INNER JOIN [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON l.OwnerToken = f.OwnerToken
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    INSERT INTO @Looked (OwnerToken, Seq)
    SELECT DISTINCT h.OwnerToken, CAST(i.value AS BIGINT)
    FROM @Held AS h CROSS APPLY OPENJSON(h.Seqs) AS i
    WHERE CAST(i.[key] AS INT) < @Sample;

    INSERT INTO @Topics (OwnerToken, FirstSeq, Messages)
    SELECT k.OwnerToken, MIN(k.Seq), COUNT(*)
    FROM @Looked AS k INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) ON s.Seq = k.Seq
    WHERE s.OwnerToken = k.OwnerToken
    GROUP BY k.OwnerToken, s.TopicKey
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT CAST(h.OwnerToken AS CHAR(36)), w.Name, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), h.LockedUntil), o.Topic, COALESCE(t.Messages, 0)
    FROM @Held AS h
    LEFT JOIN @Topics AS t ON t.OwnerToken = h.OwnerToken
    LEFT JOIN [dbo].[Outbox_Worker] AS w WITH (FORCESEEK) ON w.WorkerId = h.WorkerId
    LEFT JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = t.FirstSeq
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
