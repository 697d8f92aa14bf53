-- Returns the messages that Outbox_Take took; a row with Seq 0 has the number of those that it gave back in RetryCount. An error
-- after the commit has a number of its own: the claim must not be run again as if it had not happened.
IF OBJECT_ID(N'[dbo].[Outbox_Taken]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Taken] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Taken]
    @Taken NVARCHAR(MAX),
    @GivenBack INT
AS
BEGIN
    SET NOCOUNT ON;

    BEGIN TRY
        SELECT o.Seq, CAST(o.MessageId AS CHAR(36)), o.Uuid, o.Topic, o.Payload, o.Headers, o.CorrelationId, o.StreamKey,
               DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), o.CreatedAt),
               DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), o.DueTimeUtc),
               t.retries, t.stages, DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), SYSUTCDATETIME())
        FROM OPENJSON(@Taken) WITH (seq BIGINT '$.seq', retries INT '$.retries', stages INT '$.stages') AS t
        INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = t.seq
        UNION ALL
        SELECT 0, '00000000-0000-0000-0000-000000000000', N'', N'', CAST(0x AS VARBINARY(MAX)), NULL, NULL, NULL, 0, NULL, @GivenBack, NULL, 0
        WHERE @GivenBack > 0
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
    END TRY
    BEGIN CATCH
        IF @@TRANCOUNT = 0 THROW 51206, 'messages were claimed, and could not be read; they are delivered when their lease expires', 1;
        THROW;
    END CATCH
END
GO
