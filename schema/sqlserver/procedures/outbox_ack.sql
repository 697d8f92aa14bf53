-- Marks held messages as done. For callers in T-SQL: @Ids is a JSON array of Seq. Ids that are not held with the token are
-- ignored.
IF OBJECT_ID(N'[dbo].[Outbox_Ack]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Ack] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Ack]
    @OwnerToken UNIQUEIDENTIFIER,
    @Ids NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Arg NVARCHAR(MAX) = N'{"worker":"' + STRING_ESCAPE(LEFT(COALESCE(HOST_NAME(), N''), 100), 'json')
        + N'","backoff_ms":1000,"backoff_max_ms":60000,"delete_acked":false,"groups":[{"outcome":0,"owner":"'
        + CAST(@OwnerToken AS NVARCHAR(36)) + N'","seqs":' + @Ids + N'}]}';
    EXEC [dbo].[Outbox_Settle] @Arg = @Arg;
END
GO
