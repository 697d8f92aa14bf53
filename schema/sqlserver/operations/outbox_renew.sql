-- Extends the leases of held messages from now, by the database's clock, and answers with the receipts it refused.
IF OBJECT_ID(N'[dbo].[Outbox_Renew]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Renew] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Renew]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @LeaseMs INT = CAST(JSON_VALUE(@Arg, '$.lease_ms') AS INT);
    DECLARE @Wanted TABLE (Seq BIGINT NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Held BIT NOT NULL, PRIMARY KEY (Seq, OwnerToken));

    BEGIN TRY
        BEGIN TRANSACTION;

        INSERT INTO @Wanted (Seq, OwnerToken, Held)
        SELECT CAST(s.value AS BIGINT), g.owner, 0
        FROM OPENJSON(@Arg, '$.groups') WITH (owner UNIQUEIDENTIFIER '$.owner', seqs NVARCHAR(MAX) '$.seqs' AS JSON) AS g
        CROSS APPLY OPENJSON(g.seqs) AS s;

        UPDATE w
        SET Held = 1
        FROM @Wanted AS w INNER JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON o.Seq = w.Seq
        WHERE o.Status = 1 AND o.OwnerToken = w.OwnerToken
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        UPDATE o
        SET LockedUntil = DATEADD(MILLISECOND, @LeaseMs, SYSUTCDATETIME())
        FROM [dbo].[Outbox] AS o WITH (ROWLOCK, FORCESEEK) INNER JOIN @Wanted AS w ON o.Seq = w.Seq
        WHERE w.Held = 1 AND o.Status = 1 AND o.OwnerToken = w.OwnerToken
        OPTION (LOOP JOIN, MAXDOP 1);

        SELECT w.Seq, CAST(w.OwnerToken AS CHAR(36)) FROM @Wanted AS w WHERE w.Held = 0;

        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
