-- Lists the paused topics: since when, who paused them, and why. Few topics are. NOLOCK as in a claim: what is
-- not committed counts early.
IF OBJECT_ID(N'[dbo].[Outbox_Topic_Paused]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Topic_Paused] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Topic_Paused]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    SELECT p.Topic, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), p.PausedAt), p.PausedBy, p.Reason
    FROM [dbo].[Outbox_Paused] AS p WITH (NOLOCK, FORCESEEK)
    WHERE p.TopicKey >= CAST(-9223372036854775808 AS BIGINT)
    OPTION (MAXDOP 1);
END
GO
