-- Gives back up to limit messages whose lease has expired, which counts an attempt; answers how many.
-- Ended messages hold no lease and are never touched.
IF OBJECT_ID(N'[dbo].[Outbox_Reap]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Reap] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Reap]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Now DATETIME2(3) = SYSUTCDATETIME();
    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);

    UPDATE [dbo].[Outbox] WITH (ROWLOCK, READPAST)
    SET Status = 0, OwnerToken = NULL, LockedUntil = NULL, RetryCount = RetryCount + 1,
        LastError = N'the lease expired: the worker stopped or did not renew it in time'
    WHERE Status = 1 AND LockedUntil < @Now AND Seq IN (
        SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
        WHERE Status = 1 AND LockedUntil < @Now ORDER BY LockedUntil)
    OPTION (LOOP JOIN, MAXDOP 1);

    SELECT CAST(@@ROWCOUNT AS BIGINT);
END
GO
