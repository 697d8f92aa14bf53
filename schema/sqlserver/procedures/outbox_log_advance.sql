-- Moves a consumer group on to a position in a topic, but never back. In the transaction of Outbox_Log_Next.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Advance]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Log_Advance] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Log_Advance]
    @GroupName NVARCHAR(255),
    @Topic NVARCHAR(255),
    @Position BIGINT
AS
BEGIN
    SET NOCOUNT ON;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;

    UPDATE g
    SET Position = @Position
    FROM [dbo].[Outbox_Log_Group] AS g WITH (ROWLOCK, FORCESEEK)
    WHERE GroupName = @GroupName AND Topic = @Topic AND Position < @Position;
END
GO
