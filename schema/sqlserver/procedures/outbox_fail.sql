-- Marks held messages as failed for good. For callers in T-SQL: @Ids is a JSON array of Seq. Ids that are not held with the
-- token are ignored.
IF OBJECT_ID(N'[dbo].[Outbox_Fail]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Fail] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Fail]
    @OwnerToken UNIQUEIDENTIFIER,
    @Ids NVARCHAR(MAX),
    @LastError NVARCHAR(MAX) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Arg NVARCHAR(MAX) = N'{"worker":"' + STRING_ESCAPE(LEFT(COALESCE(HOST_NAME(), N''), 100), 'json')
        + N'","backoff_ms":1000,"backoff_max_ms":60000,"delete_acked":false,"groups":[{"outcome":3,"owner":"'
        + CAST(@OwnerToken AS NVARCHAR(36)) + N'","seqs":' + @Ids + COALESCE(N',"error":"' + STRING_ESCAPE(@LastError, 'json') + N'"', N'') + N'}]}';
    EXEC [dbo].[Outbox_Settle] @Arg = @Arg;
END
GO
