-- The outbox read as a log. Numbers assigned by an insert become visible out of order, and a reader that goes by them misses
-- late commits. So each message waits in Outbox_Log_Pending, and a sequencer gives positions to committed ones. A message
-- for the log alone has no state, so no claim takes it.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Pending]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Log_Pending] (
        Seq       BIGINT           NOT NULL,
        MessageId UNIQUEIDENTIFIER NOT NULL,
        Topic     NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        CONSTRAINT [PK_Outbox_Log_Pending] PRIMARY KEY CLUSTERED (Seq)
    );
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Log_Pending]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Log_Pending_MessageId]', 1))) = PARSENAME(N'[IX_Outbox_Log_Pending_MessageId]', 1))
    CREATE INDEX [IX_Outbox_Log_Pending_MessageId] ON [dbo].[Outbox_Log_Pending] (MessageId);
GO
IF OBJECT_ID(N'[dbo].[Outbox_Log]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Log] (
        Position  BIGINT           NOT NULL,
        Topic     NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        MessageId UNIQUEIDENTIFIER NOT NULL,
        LoggedAt  DATETIME2(3)     NOT NULL CONSTRAINT [DF_Outbox_Log_LoggedAt] DEFAULT (SYSUTCDATETIME()),
        CONSTRAINT [PK_Outbox_Log] PRIMARY KEY CLUSTERED (Position)
    );
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Log]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Log_Topic]', 1))) = PARSENAME(N'[IX_Outbox_Log_Topic]', 1))
    CREATE INDEX [IX_Outbox_Log_Topic] ON [dbo].[Outbox_Log] (Topic, Position) INCLUDE (MessageId);

IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Log]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Log_MessageId]', 1))) = PARSENAME(N'[IX_Outbox_Log_MessageId]', 1))
    CREATE INDEX [IX_Outbox_Log_MessageId] ON [dbo].[Outbox_Log] (MessageId);
GO
-- The last position given. The sequencer locks this row to give the next.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Counter]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Log_Counter] (
        Id       TINYINT NOT NULL,
        Position BIGINT  NOT NULL,
        CONSTRAINT [PK_Outbox_Log_Counter] PRIMARY KEY CLUSTERED (Id)
    );
GO
-- How far each consumer group has read in each topic, and who reads for it. Attempts have been spent on the message at
-- Tried. Version and Shape are the reader's, so that a newer one can take over. Interrupted says that a reader
-- never gave its lease back, and none has moved the group on since: a message may have killed it.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Group]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Log_Group] (
        GroupName   NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        Topic       NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        Position    BIGINT           NOT NULL CONSTRAINT [DF_Outbox_Log_Group_Position] DEFAULT (0),
        OwnerToken  UNIQUEIDENTIFIER NULL,
        LockedUntil DATETIME2(3)     NULL,
        Tried       BIGINT           NOT NULL CONSTRAINT [DF_Outbox_Log_Group_Tried] DEFAULT (0),
        Attempts    INT              NOT NULL CONSTRAINT [DF_Outbox_Log_Group_Attempts] DEFAULT (0),
        Version     BIGINT           NOT NULL CONSTRAINT [DF_Outbox_Log_Group_Version] DEFAULT (0),
        Shape       BIGINT           NOT NULL CONSTRAINT [DF_Outbox_Log_Group_Shape] DEFAULT (0),
        Interrupted BIT              NOT NULL CONSTRAINT [DF_Outbox_Log_Group_Interrupted] DEFAULT (0),
        CONSTRAINT [PK_Outbox_Log_Group] PRIMARY KEY NONCLUSTERED (GroupName, Topic)
    );
GO
-- Messages that a group gave up and passed. A message stays in the log while its row is here; Requeued marks those to
-- deliver to the group again. A group's name and a topic may be 255 characters each: with the position that fits into the
-- 1,700 bytes of a nonclustered key, but not into the 900 of a clustered one.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Dead]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Log_Dead] (
        GroupName NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        Topic     NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        Position  BIGINT           NOT NULL,
        MessageId UNIQUEIDENTIFIER NOT NULL,
        Attempts  INT              NOT NULL,
        Reason    NVARCHAR(MAX)    NULL,
        FailedAt  DATETIME2(3)     NOT NULL CONSTRAINT [DF_Outbox_Log_Dead_FailedAt] DEFAULT (SYSUTCDATETIME()),
        Requeued  BIT              NOT NULL CONSTRAINT [DF_Outbox_Log_Dead_Requeued] DEFAULT (0),
        CONSTRAINT [PK_Outbox_Log_Dead] PRIMARY KEY NONCLUSTERED (GroupName, Position, Topic)
    );
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Log_Dead]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Log_Dead_Position]', 1))) = PARSENAME(N'[IX_Outbox_Log_Dead_Position]', 1))
    CREATE CLUSTERED INDEX [IX_Outbox_Log_Dead_Position] ON [dbo].[Outbox_Log_Dead] (Position);

IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Log_Dead]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Log_Dead_Requeued]', 1))) = PARSENAME(N'[IX_Outbox_Log_Dead_Requeued]', 1))
    CREATE INDEX [IX_Outbox_Log_Dead_Requeued] ON [dbo].[Outbox_Log_Dead] (GroupName, Topic, Position) WHERE Requeued = 1;
GO
-- If the counter was lost, it continues after the last known position.
IF NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Counter])
    INSERT INTO [dbo].[Outbox_Log_Counter] (Id, Position)
    SELECT 1, COALESCE(MAX(p.Position), 0)
    FROM (SELECT Position FROM [dbo].[Outbox_Log] UNION ALL SELECT Position FROM [dbo].[Outbox_Log_Group]) AS p;
GO
-- The ids of messages that must be kept after they have ended, except those in Outbox_Log_Pending: check that first, in a
-- separate statement, because messages move from there to Outbox_Log. The joins replace this view with one that adds theirs,
-- and this file does not overwrite it, however often it is run. A view must be created alone in its batch, so it is in a
-- string.
IF OBJECT_ID(N'[dbo].[Outbox_Kept]', N'V') IS NULL
    EXEC (N'CREATE VIEW [dbo].[Outbox_Kept] AS
SELECT l.MessageId FROM [dbo].[Outbox_Log] AS l');
GO
