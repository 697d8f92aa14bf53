-- The most recent dead letters, of one topic or of all.
IF OBJECT_ID(N'[dbo].[Outbox_Failed]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Failed] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Failed]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    DECLARE @Limit INT = CAST(JSON_VALUE(@Arg, '$.limit') AS INT);
    DECLARE @Topic NVARCHAR(255) = JSON_VALUE(@Arg, '$.topic');
    DECLARE @Epoch DATETIME2(3) = '1970-01-01';
    SELECT TOP (@Limit) o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.CreatedAt), DATEDIFF_BIG(MILLISECOND, @Epoch, o.DueTimeUtc),
           o.RetryCount, CAST(o.Status AS INT), DATEDIFF_BIG(MILLISECOND, @Epoch, o.NextAttemptAt),
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.LockedUntil), CAST(o.OwnerToken AS CHAR(36)), o.LastError,
           DATEDIFF_BIG(MILLISECOND, @Epoch, o.ProcessedAt), o.ProcessedBy
    FROM [dbo].[Outbox] AS o
    WHERE o.Status >= 2 AND o.Status = 3 AND (@Topic IS NULL OR o.Topic = @Topic)
    ORDER BY o.ProcessedAt DESC, o.Seq DESC
    OPTION (RECOMPILE);
END
GO
