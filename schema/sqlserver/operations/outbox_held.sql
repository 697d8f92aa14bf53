-- The messages that a claim still holds, including those that others have locked. A worker asks when it lost the answer to that
-- claim. If the lease is locked, the claim may still be running, and there are none.
IF OBJECT_ID(N'[dbo].[Outbox_Held]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Held] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Held]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Owner UNIQUEIDENTIFIER = CAST(JSON_VALUE(@Arg, '$.owner') AS UNIQUEIDENTIFIER);
    DECLARE @Seqs NVARCHAR(MAX);
    DECLARE @Claimed TABLE (Seq BIGINT NOT NULL PRIMARY KEY);

    SELECT @Seqs = l.Seqs
    FROM [dbo].[Outbox_Lease] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
    WHERE l.OwnerToken = @Owner
    OPTION (MAXDOP 1);

    INSERT INTO @Claimed (Seq)
    SELECT DISTINCT CAST(i.value AS BIGINT) FROM OPENJSON(@Seqs) AS i;

    SELECT c.Seq
    FROM @Claimed AS c INNER JOIN [dbo].[Outbox_State] AS s WITH (NOLOCK, FORCESEEK) ON s.Seq = c.Seq
    WHERE s.OwnerToken = @Owner
    OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
END
GO
