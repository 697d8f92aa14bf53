-- Adds stages, which are bits, to a held message in the transaction of what they stand for; returns whether they were there
-- before, or nothing if the message is no longer held with this token. The row stays locked until the transaction ends, so
-- that nobody else can take the message meanwhile. REPEATABLEREAD keeps SERIALIZABLE from locking the gap beside it.
IF OBJECT_ID(N'[dbo].[Outbox_Stage_Save]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Stage_Save] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Stage_Save]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    ELSE SET XACT_ABORT OFF;

    DECLARE @Seq BIGINT = CAST(JSON_VALUE(@Arg, '$.seq') AS BIGINT);
    DECLARE @Owner UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.owner');
    DECLARE @Added INT = CAST(JSON_VALUE(@Arg, '$.stages') AS INT);
    DECLARE @Before INT, @Written INT;

    SELECT @Before = COALESCE(s.Stages, 0)
    FROM [dbo].[Outbox_State] AS s WITH (UPDLOCK, REPEATABLEREAD, ROWLOCK, FORCESEEK)
    WHERE s.Seq = @Seq AND s.OwnerToken = @Owner
    OPTION (MAXDOP 1);

    UPDATE s
    SET Stages = COALESCE(s.Stages, 0) | @Added
    FROM [dbo].[Outbox_State] AS s WITH (ROWLOCK, FORCESEEK)
    WHERE s.Seq = @Seq AND s.OwnerToken = @Owner
    OPTION (MAXDOP 1);
    SET @Written = @@ROWCOUNT;

    -- Outside a transaction, the lease may be lost between the two.
    SELECT CAST(CASE WHEN @Before & @Added = @Added THEN 1 ELSE 0 END AS BIT) WHERE @Before IS NOT NULL AND @Written = 1;
END
GO
