-- Joins: groups of messages whose end is waited for. The outbox table does not know about them. Status: 0 pending, 1
-- completed, 2 failed, 3 cancelled. Verdict is what Status should be according to the counters, and the only place that says
-- when a join ends. ExpectedSteps is NULL until an open join is sealed; Quorum is set if not all steps must complete.
IF OBJECT_ID(N'[dbo].[OutboxJoin]', N'U') IS NULL
    CREATE TABLE [dbo].[OutboxJoin] (
        JoinId         UNIQUEIDENTIFIER NOT NULL,
        GroupingKey    NVARCHAR(255)    COLLATE Latin1_General_BIN2 NULL,
        ExpectedSteps  INT              NULL,
        CompletedSteps INT              NOT NULL CONSTRAINT [DF_OutboxJoin_CompletedSteps] DEFAULT (0),
        FailedSteps    INT              NOT NULL CONSTRAINT [DF_OutboxJoin_FailedSteps] DEFAULT (0),
        Quorum         INT              NULL,
        FailFast       BIT              NOT NULL CONSTRAINT [DF_OutboxJoin_FailFast] DEFAULT (0),
        Cancelled      BIT              NOT NULL CONSTRAINT [DF_OutboxJoin_Cancelled] DEFAULT (0),
        Verdict        AS (CASE
            WHEN Cancelled = 1 THEN 3
            WHEN CompletedSteps >= COALESCE(Quorum, ExpectedSteps) THEN 1
            WHEN CompletedSteps + FailedSteps >= ExpectedSteps THEN 2
            WHEN FailedSteps > ExpectedSteps - Quorum THEN 2
            WHEN FailFast = 1 AND FailedSteps > 0 THEN 2
            ELSE 0 END),
        Status         TINYINT          NOT NULL CONSTRAINT [DF_OutboxJoin_Status] DEFAULT (0),
        CreatedUtc     DATETIME2(3)     NOT NULL CONSTRAINT [DF_OutboxJoin_CreatedUtc] DEFAULT (SYSUTCDATETIME()),
        LastUpdatedUtc DATETIME2(3)     NOT NULL CONSTRAINT [DF_OutboxJoin_LastUpdatedUtc] DEFAULT (SYSUTCDATETIME()),
        Metadata       NVARCHAR(MAX)    NULL,
        CONSTRAINT [PK_OutboxJoin] PRIMARY KEY CLUSTERED (JoinId)
    );
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[OutboxJoin]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_OutboxJoin_GroupingKey]', 1))) = PARSENAME(N'[IX_OutboxJoin_GroupingKey]', 1))
    CREATE INDEX [IX_OutboxJoin_GroupingKey] ON [dbo].[OutboxJoin] (GroupingKey, JoinId) WHERE GroupingKey IS NOT NULL;

-- Pending joins, in the order in which they started.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[OutboxJoin]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_OutboxJoin_Pending]', 1))) = PARSENAME(N'[IX_OutboxJoin_Pending]', 1))
    CREATE INDEX [IX_OutboxJoin_Pending] ON [dbo].[OutboxJoin] (JoinId) WHERE Status = 0;

-- Ended joins for purging. LastUpdatedUtc is in no index, because every count would have to write to it.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[OutboxJoin]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_OutboxJoin_Ended]', 1))) = PARSENAME(N'[IX_OutboxJoin_Ended]', 1))
    CREATE INDEX [IX_OutboxJoin_Ended] ON [dbo].[OutboxJoin] (CreatedUtc) WHERE Status <> 0;
GO
-- The steps. Status: 0 pending, 1 completed, 2 failed; it changes once. EndsBy: 0 when the message is settled, 1 by a
-- report. No table of joins has a foreign key: a cascade locks ranges up to the next join, and checking a key may look at all
-- joins. Attaching and waiting make sure of the join under its lock, and purging deletes its rows before it.
IF OBJECT_ID(N'[dbo].[OutboxJoinMember]', N'U') IS NULL
    CREATE TABLE [dbo].[OutboxJoinMember] (
        JoinId          UNIQUEIDENTIFIER NOT NULL,
        OutboxMessageId UNIQUEIDENTIFIER NOT NULL,
        EndsBy          TINYINT          NOT NULL CONSTRAINT [DF_OutboxJoinMember_EndsBy] DEFAULT (0),
        Status          TINYINT          NOT NULL CONSTRAINT [DF_OutboxJoinMember_Status] DEFAULT (0),
        CreatedUtc      DATETIME2(3)     NOT NULL CONSTRAINT [DF_OutboxJoinMember_CreatedUtc] DEFAULT (SYSUTCDATETIME()),
        CONSTRAINT [PK_OutboxJoinMember] PRIMARY KEY CLUSTERED (JoinId, OutboxMessageId)
    );
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[OutboxJoinMember]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_OutboxJoinMember_MessageId]', 1))) = PARSENAME(N'[IX_OutboxJoinMember_MessageId]', 1))
    CREATE INDEX [IX_OutboxJoinMember_MessageId] ON [dbo].[OutboxJoinMember] (OutboxMessageId);
GO
-- How many steps a join has. Separate from the join's row, so that a long transaction that attaches does not keep others
-- from counting. Purging deletes it with its join.
IF OBJECT_ID(N'[dbo].[OutboxJoinSize]', N'U') IS NULL
    CREATE TABLE [dbo].[OutboxJoinSize] (
        JoinId   UNIQUEIDENTIFIER NOT NULL,
        Attached INT              NOT NULL CONSTRAINT [DF_OutboxJoinSize_Attached] DEFAULT (0),
        CONSTRAINT [PK_OutboxJoinSize] PRIMARY KEY CLUSTERED (JoinId)
    );
GO
-- Messages that wait for the end of a join, which makes them due.
IF OBJECT_ID(N'[dbo].[OutboxJoinWait]', N'U') IS NULL
    CREATE TABLE [dbo].[OutboxJoinWait] (
        JoinId          UNIQUEIDENTIFIER NOT NULL,
        OutboxMessageId UNIQUEIDENTIFIER NOT NULL,
        DeadlineUtc     DATETIME2(3)     NULL,
        CONSTRAINT [PK_OutboxJoinWait] PRIMARY KEY CLUSTERED (JoinId, OutboxMessageId)
    );
GO
-- Drops the view without joins; the one below stays if this is run again, with the rights granted on it.
IF EXISTS (SELECT 1 FROM sys.sql_modules AS m WHERE m.object_id = OBJECT_ID(N'[dbo].[Outbox_Kept]', N'V') AND CHARINDEX(N'JoinMember]', m.definition) = 0)
    EXEC (N'DROP VIEW [dbo].[Outbox_Kept]');
GO
-- A view must be created alone in its batch, so it is in a string. NOLOCK and READPAST, so that a transaction that attaches
-- or ends a step, however long, does not keep others from purging. Uncommitted steps count as kept, and so do those of a
-- locked join.
IF OBJECT_ID(N'[dbo].[Outbox_Kept]', N'V') IS NULL
    EXEC (N'CREATE VIEW [dbo].[Outbox_Kept] AS
SELECT l.MessageId FROM [dbo].[Outbox_Log] AS l
UNION ALL
SELECT m.OutboxMessageId
FROM [dbo].[OutboxJoinMember] AS m WITH (NOLOCK)
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, READPAST) WHERE j.JoinId = m.JoinId AND j.Status <> 0)');
GO
