-- The outbox read as a log. Numbers that are given at the insert commit out of order, and whoever reads by them misses what
-- commits late. So each message waits in Outbox_Log_Pending, and a sequencer gives positions to those that are committed.
-- A message for the log alone has no state, and so no claim takes it.
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
-- The last position that was given. Whoever gives the next holds the row.
IF OBJECT_ID(N'[dbo].[Outbox_Log_Counter]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Log_Counter] (
        Id       TINYINT NOT NULL,
        Position BIGINT  NOT NULL,
        CONSTRAINT [PK_Outbox_Log_Counter] PRIMARY KEY CLUSTERED (Id)
    );
GO
-- How far each consumer group has come in each topic, and who reads for it. Of the message at Tried it has spent Attempts;
-- Version and Shape are those of the reader, so that a newer one takes over. Interrupted says that the reader before that one
-- never gave its lease back: a message may have killed it.
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
-- What a group has given up and passed. The message stays in the log for as long as its row is here; Requeued is what the
-- group is to have again. A group's name and a topic may be 255 characters each: with the position that is within the 1,700
-- bytes of a nonclustered key, and past the 900 of a clustered one.
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
-- Where the counter was lost, it goes on after the last position that anybody knows of.
IF NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log_Counter])
    INSERT INTO [dbo].[Outbox_Log_Counter] (Id, Position)
    SELECT 1, COALESCE(MAX(p.Position), 0)
    FROM (SELECT Position FROM [dbo].[Outbox_Log] UNION ALL SELECT Position FROM [dbo].[Outbox_Log_Group]) AS p;
GO
-- The ids of messages that are not deleted when they have ended, but for those of Outbox_Log_Pending: whoever asks asks there
-- first, in a statement of its own, since messages go from there to Outbox_Log. Joins put theirs in by a view of their own,
-- which this one does not replace, however often it is run. A view must be created alone in its batch, and so it stands in a
-- string.
IF OBJECT_ID(N'[dbo].[Outbox_Kept]', N'V') IS NULL
    EXEC (N'CREATE VIEW [dbo].[Outbox_Kept] AS
SELECT l.MessageId FROM [dbo].[Outbox_Log] AS l');
GO
