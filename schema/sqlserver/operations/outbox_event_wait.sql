-- Returns the position of an event in the log, 0 if it has none yet and -1 if there is no such event, and how far a consumer group
-- has read that, -1 if there is no such group: the group of the whole log (topic '') or of the event's topic, which the message
-- has: the index that finds the position does not.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Wait]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Event_Wait] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Event_Wait]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET IMPLICIT_TRANSACTIONS OFF;
    IF @@TRANCOUNT = 0 SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @Stream NVARCHAR(255) = JSON_VALUE(@Arg, '$.stream');
    DECLARE @Version BIGINT = CAST(JSON_VALUE(@Arg, '$.version') AS BIGINT);
    DECLARE @Group NVARCHAR(255) = JSON_VALUE(@Arg, '$.group');
    DECLARE @StreamNo BIGINT, @Seq BIGINT, @MessageId UNIQUEIDENTIFIER, @Position BIGINT = -1, @Topic NVARCHAR(255) = N'', @Reached BIGINT = -1;

    SELECT @StreamNo = s.StreamNo FROM [dbo].[Outbox_Event_Stream] AS s WITH (FORCESEEK) WHERE s.Name = @Stream OPTION (MAXDOP 1);
    SELECT @Seq = e.Seq FROM [dbo].[Outbox_Event] AS e WITH (FORCESEEK) WHERE e.StreamNo = @StreamNo AND e.Version = @Version OPTION (MAXDOP 1);
    SELECT @MessageId = o.MessageId, @Topic = o.Topic FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.Seq = @Seq OPTION (MAXDOP 1);
    IF @MessageId IS NOT NULL SET @Position = 0;
    SELECT @Position = l.Position FROM [dbo].[Outbox_Log] AS l WITH (FORCESEEK) WHERE l.MessageId = @MessageId OPTION (MAXDOP 1);

    SELECT @Reached = COALESCE(MAX(g.Position), -1)
    FROM [dbo].[Outbox_Log_Group] AS g WITH (FORCESEEK) WHERE g.GroupName = @Group AND g.Topic IN (@Topic, N'')
    OPTION (MAXDOP 1);

    SELECT @Position, @Reached;
END
GO
