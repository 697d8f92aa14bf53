-- Extends the leases of held messages from now, by the database's clock, and answers with the receipts whose leases it did
-- not extend: refused, because the row has another owner now, or none, or held but locked. A row that a handler's own
-- transaction has settled is locked until that commits: it is passed over, so that one long transaction does not keep
-- the others' leases from being renewed. Whether a row is gone is asked without waiting, too.
IF OBJECT_ID(N'[dbo].[Outbox_Renew]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Renew] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Renew]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @LeaseMs INT = CAST(JSON_VALUE(@Arg, '$.lease_ms') AS INT);
    DECLARE @Wanted TABLE (Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, PRIMARY KEY (Seq, OwnerToken));
    DECLARE @Renewed TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    INSERT INTO @Wanted (Seq, OwnerToken)
    SELECT CAST(s.value AS BIGINT), CAST(JSON_VALUE(g.value, '$.owner') AS UNIQUEIDENTIFIER)
    FROM OPENJSON(@Arg, '$.groups') AS g CROSS APPLY OPENJSON(g.value, '$.seqs') AS s;

    UPDATE o
    SET LockedUntil = DATEADD(MILLISECOND, @LeaseMs, SYSUTCDATETIME())
    OUTPUT inserted.Seq INTO @Renewed (Seq)
    FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (ROWLOCK, READPAST, FORCESEEK) ON o.Seq = w.Seq
    WHERE o.Status = 1 AND o.OwnerToken = w.OwnerToken
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

    SELECT w.Seq, CAST(w.OwnerToken AS CHAR(36)),
           CAST(CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                                  WHERE o.Seq = w.Seq AND (o.OwnerToken IS NULL OR o.OwnerToken <> w.OwnerToken))
                       OR NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (NOLOCK, FORCESEEK) WHERE o.Seq = w.Seq)
                THEN 0 ELSE 1 END AS BIT)
    FROM @Wanted AS w
    WHERE NOT EXISTS (SELECT 1 FROM @Renewed AS r WHERE r.Seq = w.Seq)
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
