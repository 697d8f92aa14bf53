-- What a claim still holds, for a worker that did not get the answer of that claim, with what others have locked. A lease that
-- is locked is left out: the claim may not be over yet.
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
