-- Extends leases from now, by the database's clock: one row per claim. Returns the receipts whose leases it did not extend:
-- refused, because the message has another owner now, or none, or held under a lease that is locked and was skipped. A
-- message that a handler's own transaction has settled is held until that commits. It waits for nobody, not even to see
-- whether a message is gone.
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
    DECLARE @Owners TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);
    DECLARE @Free TABLE (OwnerToken UNIQUEIDENTIFIER NOT NULL PRIMARY KEY);

    INSERT INTO @Wanted (Seq, OwnerToken)
    SELECT CAST(s.value AS BIGINT), CAST(JSON_VALUE(g.value, '$.owner') AS UNIQUEIDENTIFIER)
    FROM OPENJSON(@Arg, '$.groups') AS g CROSS APPLY OPENJSON(g.value, '$.seqs') AS s;

    INSERT INTO @Owners (OwnerToken) SELECT DISTINCT OwnerToken FROM @Wanted;

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Free (OwnerToken)
        SELECT l.OwnerToken
        FROM @Owners AS w INNER JOIN [dbo].[Outbox_Lease] AS l WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) ON l.OwnerToken = w.OwnerToken
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        UPDATE l
        SET LockedUntil = DATEADD(MILLISECOND, @LeaseMs, SYSUTCDATETIME())
        FROM @Free AS f INNER JOIN [dbo].[Outbox_Lease] AS l WITH (ROWLOCK, FORCESEEK) ON l.OwnerToken = f.OwnerToken
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH

    SELECT r.Seq, CAST(r.OwnerToken AS CHAR(36)), CAST(1 - r.Refused AS BIT)
    FROM (SELECT w.Seq, w.OwnerToken,
                 CASE WHEN EXISTS (SELECT 1 FROM @Free AS f WHERE f.OwnerToken = w.OwnerToken) THEN 1 ELSE 0 END AS Extended,
                 CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                                   WHERE s.Seq = w.Seq AND (s.OwnerToken IS NULL OR s.OwnerToken <> w.OwnerToken))
                        OR NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) WHERE s.Seq = w.Seq)
                      THEN 1 ELSE 0 END AS Refused
          FROM @Wanted AS w) AS r
    WHERE r.Extended = 0 OR r.Refused = 1
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
