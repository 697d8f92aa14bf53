-- Makes messages steps of a join; existing steps stay as they are. A message that has ended is counted at once. Returns
-- refusals (seq -1 no such join, -2 it has ended, -3 it is full, -4 no such message, -6 it is for the log alone and never
-- ends), with nothing counted, or the join if it has ended. The row of the size is locked, not the join's, so that settling
-- goes on while a long transaction attaches. Only the holder of that lock inserts steps of the join, so no duplicate key can
-- doom the caller's transaction. The states are written to, so that none ends unnoticed at any isolation level: flag 1 tells
-- settling to count. Messages of this same transaction (fresh) cannot have ended. A message without a state was deleted on
-- acknowledgement, or is for the log alone. Rows that are only read are read as currently committed (READCOMMITTEDLOCK at
-- the tables), because a caller's snapshot may be from before the join ended.
IF OBJECT_ID(N'[dbo].[Outbox_Join_Attach]', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE [dbo].[Outbox_Join_Attach] AS RETURN 0');
GO
ALTER PROCEDURE [dbo].[Outbox_Join_Attach]
    @Arg NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @Outer INT = @@TRANCOUNT;
    IF @Outer = 0
    BEGIN
        SET XACT_ABORT ON;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END
    ELSE SET XACT_ABORT OFF;

    DECLARE @Id UNIQUEIDENTIFIER = JSON_VALUE(@Arg, '$.id');
    DECLARE @ByReport BIT = CASE JSON_VALUE(@Arg, '$.by_report') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Fresh BIT = CASE JSON_VALUE(@Arg, '$.fresh') WHEN N'true' THEN 1 ELSE 0 END;
    DECLARE @Attached INT, @Room INT, @Status INT, @New INT, @Done INT = 0, @Dead INT = 0, @Refusal BIGINT = 0, @Missing UNIQUEIDENTIFIER, @Advance NVARCHAR(MAX);
    DECLARE @Steps TABLE (MessageId UNIQUEIDENTIFIER NOT NULL PRIMARY KEY, Status TINYINT NULL);
    DECLARE @Rows TABLE (Seq BIGINT NOT NULL PRIMARY KEY, MessageId UNIQUEIDENTIFIER NOT NULL);

    BEGIN TRY
        IF @Outer = 0 BEGIN TRANSACTION;
        ELSE SAVE TRANSACTION Outbox_Join_Attach;

        UPDATE z SET Attached = Attached FROM [dbo].[OutboxJoinSize] AS z WITH (ROWLOCK, FORCESEEK) WHERE JoinId = @Id;
        SELECT @Attached = Attached FROM [dbo].[OutboxJoinSize] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id;
        SELECT @Room = ExpectedSteps - @Attached, @Status = Status FROM [dbo].[OutboxJoin] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE JoinId = @Id;

        INSERT INTO @Steps (MessageId)
        SELECT DISTINCT CAST(i.value AS UNIQUEIDENTIFIER)
        FROM OPENJSON(@Arg, '$.messages') AS i
        WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoinMember] AS m WITH (READCOMMITTEDLOCK, FORCESEEK)
                          WHERE m.JoinId = @Id AND m.OutboxMessageId = CAST(i.value AS UNIQUEIDENTIFIER))
        OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
        SET @New = @@ROWCOUNT;

        IF @Status IS NULL SET @Refusal = -1;
        ELSE IF @New > 0 AND @Status <> 0 SET @Refusal = -2;
        ELSE IF @New > @Room SET @Refusal = -3;

        IF @Refusal = 0 AND @New > 0 AND @ByReport = 0
        BEGIN
            INSERT INTO @Rows (Seq, MessageId)
            SELECT o.Seq, t.MessageId
            FROM @Steps AS t INNER JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.MessageId = t.MessageId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            SELECT TOP (1) @Missing = t.MessageId, @Refusal = -4
            FROM @Steps AS t WHERE NOT EXISTS (SELECT 1 FROM @Rows AS r WHERE r.MessageId = t.MessageId);
        END

        IF @Refusal = 0 AND @New > 0 AND @ByReport = 0
            -- Locked in order of Seq, as settling does.
            UPDATE s
            SET Flags = s.Flags | 1
            FROM @Rows AS r INNER JOIN [dbo].[Outbox_State] AS s WITH (UPDLOCK, REPEATABLEREAD, ROWLOCK, FORCESEEK) ON s.Seq = r.Seq
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

        IF @Refusal = 0 AND @New > 0 AND @ByReport = 0 AND @Fresh = 0
        BEGIN
            UPDATE t
            SET Status = CASE s.Status WHEN 2 THEN 1 WHEN 3 THEN 2 ELSE 0 END
            FROM @Rows AS r
            INNER JOIN [dbo].[Outbox_State] AS s WITH (READCOMMITTEDLOCK, FORCESEEK) ON s.Seq = r.Seq
            INNER JOIN @Steps AS t ON t.MessageId = r.MessageId
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            -- In this order, because messages move from the one to the other.
            SELECT TOP (1) @Missing = t.MessageId, @Refusal = -6
            FROM @Steps AS t
            WHERE t.Status IS NULL AND EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Pending] AS g WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE g.MessageId = t.MessageId)
            OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);
            IF @Refusal = 0
                SELECT TOP (1) @Missing = t.MessageId, @Refusal = -6
                FROM @Steps AS t
                WHERE t.Status IS NULL AND EXISTS (SELECT 1 FROM [dbo].[Outbox_Log] AS g WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE g.MessageId = t.MessageId)
                OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);

            UPDATE @Steps SET Status = 1 WHERE Status IS NULL;
        END

        IF @Refusal = 0 AND @New > 0
        BEGIN
            INSERT INTO [dbo].[OutboxJoinMember] (JoinId, OutboxMessageId, EndsBy, Status)
            SELECT @Id, MessageId, @ByReport, COALESCE(Status, 0) FROM @Steps;

            UPDATE z SET Attached = Attached + @New FROM [dbo].[OutboxJoinSize] AS z WITH (ROWLOCK, FORCESEEK) WHERE JoinId = @Id;

            SELECT @Done = COUNT(CASE Status WHEN 1 THEN 1 END), @Dead = COUNT(CASE Status WHEN 2 THEN 1 END) FROM @Steps;
        END

        IF @Refusal < 0
            SELECT @Refusal, CAST(COALESCE(@Missing, @Id) AS CHAR(36)), NULL, NULL, NULL, NULL, NULL;
        ELSE IF @Done + @Dead > 0
        BEGIN
            SET @Advance = N'[{"id":"' + CAST(@Id AS NVARCHAR(36)) + N'","done":' + CAST(@Done AS NVARCHAR(10)) + N',"dead":' + CAST(@Dead AS NVARCHAR(10)) + N'}]';
            EXEC [dbo].[Outbox_Join_Advance] @Arg = @Advance, @Outer = @Outer;
        END

        IF @Outer = 0 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION Outbox_Join_Attach;
        THROW;
    END CATCH
END
GO
