-- The outbox: a message's contents and its state are separate tables. No table of the queue refers to another by a foreign
-- key: the check would wait for rows that a caller's transaction may hold for any length of time. Topics compare by code
-- point, whatever the database's collation. Each index has its own guard, so that one that was dropped comes back. The
-- guards compare the beginning of the name, because a compatible server appends to it.
--
-- Contents: written once by publishers, and deleted by purging when nothing needs them. Seq identifies the message in all
-- these tables and grows with every insert; MessageId identifies it outside. TopicKey is the first eight bytes of the
-- SHA-256 of the topic: fixed width for states and indexes, and the same on every database. StreamId is the same for topic
-- and stream key, or NULL without a key.
IF OBJECT_ID(N'[dbo].[Outbox]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox] (
        Seq           BIGINT           IDENTITY(1, 1) NOT NULL,
        MessageId     UNIQUEIDENTIFIER NOT NULL,
        Uuid          NVARCHAR(255)    NOT NULL,
        Topic         NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        TopicKey      BIGINT           NOT NULL,
        Payload       VARBINARY(MAX)   NOT NULL,
        Headers       NVARCHAR(MAX)    NULL,
        CorrelationId NVARCHAR(255)    NULL,
        StreamKey     NVARCHAR(255)    COLLATE Latin1_General_BIN2 NULL,
        StreamId      BIGINT           NULL,
        CreatedAt     DATETIME2(3)     NOT NULL CONSTRAINT [DF_Outbox_CreatedAt] DEFAULT (SYSUTCDATETIME()),
        DueTimeUtc    DATETIME2(3)     NULL,
        CONSTRAINT [PK_Outbox] PRIMARY KEY CLUSTERED (Seq),
        CONSTRAINT [UQ_Outbox_MessageId] UNIQUE NONCLUSTERED (MessageId)
    );
GO
-- States, all fixed width: settling rewrites about eighty bytes in place, whatever the size of the message, and their pages
-- never split. Size is the size of payload and headers in bytes. NextAttemptAt alone decides when a message is eligible: the
-- due time of a new one, the end of the backoff of one that failed. Status: 0 ready, 1 in progress (leased), 2 done, 3
-- failed, 5 ready in its stream. Flags: 1 joins depend on the message, 2 the log depends on it, 4 it failed and does not
-- block its stream. Stages: bits for what has happened to the message, see middleware.Stages; NULL without any. A message for
-- the log alone has no state, and readers give it status 4. DeleteOnAck deletes the state with the acknowledgement.
-- OwnerToken is set if and only if Status is 1.
IF OBJECT_ID(N'[dbo].[Outbox_State]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_State] (
        Seq           BIGINT           NOT NULL,
        TopicKey      BIGINT           NOT NULL,
        StreamId      BIGINT           NULL,
        NextAttemptAt DATETIME2(3)     NOT NULL,
        ProcessedAt   DATETIME2(3)     NULL,
        OwnerToken    UNIQUEIDENTIFIER NULL,
        Size          INT              NOT NULL CONSTRAINT [DF_Outbox_State_Size] DEFAULT (0),
        RetryCount    INT              NOT NULL CONSTRAINT [DF_Outbox_State_RetryCount] DEFAULT (0),
        WorkerId      INT              NULL,
        Status        TINYINT          NOT NULL CONSTRAINT [DF_Outbox_State_Status] DEFAULT (0),
        Flags         TINYINT          NOT NULL CONSTRAINT [DF_Outbox_State_Flags] DEFAULT (0),
        Stages        INT              NULL,
        CONSTRAINT [PK_Outbox_State] PRIMARY KEY CLUSTERED (Seq),
        CONSTRAINT [CK_Outbox_State_Held] CHECK ((Status = 1 AND OwnerToken IS NOT NULL) OR (Status <> 1 AND OwnerToken IS NULL))
    );
GO
-- For claims, which are range seeks: only ready rows, in the order in which they are taken.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_State]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_State_Ready]', 1))) = PARSENAME(N'[IX_Outbox_State_Ready]', 1))
    CREATE INDEX [IX_Outbox_State_Ready] ON [dbo].[Outbox_State] (TopicKey, NextAttemptAt, Seq) WHERE Status = 0;

-- Dead letters by age, with the topic, so that this index alone can list them. Done messages are in no index: they are
-- purged in order of Seq.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_State]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_State_Dead]', 1))) = PARSENAME(N'[IX_Outbox_State_Dead]', 1))
    CREATE INDEX [IX_Outbox_State_Dead] ON [dbo].[Outbox_State] (ProcessedAt, Seq) INCLUDE (TopicKey) WHERE Status = 3;
GO
-- One lease per claim: renewing it writes one row, however many messages it holds, and a held message is in no index. Seqs
-- is a JSON array of what was claimed, so that it can be given back when the lease expires; Streams lists the streams they
-- came from.
IF OBJECT_ID(N'[dbo].[Outbox_Lease]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Lease] (
        OwnerToken  UNIQUEIDENTIFIER NOT NULL,
        WorkerId    INT              NOT NULL,
        LockedUntil DATETIME2(3)     NOT NULL,
        Seqs        NVARCHAR(MAX)    NOT NULL,
        Streams     NVARCHAR(MAX)    NULL,
        CONSTRAINT [PK_Outbox_Lease] PRIMARY KEY CLUSTERED (OwnerToken)
    );
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Lease]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Lease_LockedUntil]', 1))) = PARSENAME(N'[IX_Outbox_Lease_LockedUntil]', 1))
    CREATE INDEX [IX_Outbox_Lease_LockedUntil] ON [dbo].[Outbox_Lease] (LockedUntil, OwnerToken);
GO
-- Attempts that did not succeed, with their errors. Outcome: 1 retried, 2 released with a reason, 3 failed, 4 the lease
-- expired, 5 ended by an operator.
IF OBJECT_ID(N'[dbo].[Outbox_Attempt]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Attempt] (
        Seq        BIGINT        NOT NULL,
        AttemptId  BIGINT        IDENTITY(1, 1) NOT NULL,
        HappenedAt DATETIME2(3)  NOT NULL,
        WorkerId   INT           NOT NULL,
        Attempt    INT           NOT NULL,
        Outcome    TINYINT       NOT NULL,
        Error      NVARCHAR(MAX) NULL,
        CONSTRAINT [PK_Outbox_Attempt] PRIMARY KEY CLUSTERED (Seq, AttemptId)
    );
GO
-- Workers, numbered in four bytes. A name may have several rows: there is no unique key, so that two first calls do not wait
-- for each other. SeenAt is the last heartbeat; a process that only makes plain calls has none. LivesUntil: when another heartbeat
-- must have come. StoppedAt is set by a worker that has ended.
IF OBJECT_ID(N'[dbo].[Outbox_Worker]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Worker] (
        WorkerId   INT           IDENTITY(1, 1) NOT NULL,
        Name       NVARCHAR(100) COLLATE Latin1_General_BIN2 NOT NULL,
        StartedAt  DATETIME2(3)  NOT NULL CONSTRAINT [DF_Outbox_Worker_StartedAt] DEFAULT (SYSUTCDATETIME()),
        SeenAt     DATETIME2(3)  NULL,
        LivesUntil DATETIME2(3)  NOT NULL CONSTRAINT [DF_Outbox_Worker_LivesUntil] DEFAULT (SYSUTCDATETIME()),
        StoppedAt  DATETIME2(3)  NULL,
        CONSTRAINT [PK_Outbox_Worker] PRIMARY KEY CLUSTERED (WorkerId)
    );
GO
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Worker]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Worker_Name]', 1))) = PARSENAME(N'[IX_Outbox_Worker_Name]', 1))
    CREATE INDEX [IX_Outbox_Worker_Name] ON [dbo].[Outbox_Worker] (Name, WorkerId);
GO
-- To count those that live, and to purge the others.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Worker]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Worker_LivesUntil]', 1))) = PARSENAME(N'[IX_Outbox_Worker_LivesUntil]', 1))
    CREATE INDEX [IX_Outbox_Worker_LivesUntil] ON [dbo].[Outbox_Worker] (LivesUntil, WorkerId);
GO
-- Messages to make due because the join they wait for has ended. Ending a join only inserts here, and so needs no lock of a
-- message; the next claim does the rest.
IF OBJECT_ID(N'[dbo].[Outbox_Wake]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Wake] (
        WakeId BIGINT IDENTITY(1, 1) NOT NULL,
        Seq    BIGINT NOT NULL,
        CONSTRAINT [PK_Outbox_Wake] PRIMARY KEY CLUSTERED (WakeId)
    );
GO
-- Streams: messages of one topic and stream key are delivered one after the other. Publishers only insert arrivals, so that
-- they do not wait for each other. A router, one at a time (the row of Outbox_Router), moves committed messages to the
-- queues, in order of Seq. A stream's row is its lease, and its lock guards its queue: claiming, routing and freeing a
-- stream hold it.
IF OBJECT_ID(N'[dbo].[Outbox_Arrival]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Arrival] (
        Seq      BIGINT NOT NULL,
        StreamId BIGINT NOT NULL,
        TopicKey BIGINT NOT NULL,
        CONSTRAINT [PK_Outbox_Arrival] PRIMARY KEY CLUSTERED (Seq)
    );
GO
IF OBJECT_ID(N'[dbo].[Outbox_Router]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Router] (
        Id   TINYINT NOT NULL,
        Turn BIGINT  NOT NULL,
        CONSTRAINT [PK_Outbox_Router] PRIMARY KEY CLUSTERED (Id)
    );
GO
INSERT INTO [dbo].[Outbox_Router] (Id, Turn)
SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Router] AS r WHERE r.Id = 1);
GO
-- A row exists while a message waits or is being handled. Status: 0 ready, 1 leased, 2 blocked by a message that has failed.
-- NextAttemptAt: when its head is due, or since when it has been waiting to be served. RunLast: no message that is being
-- handled or has ended is behind it, except for a head that was ended outside a run.
IF OBJECT_ID(N'[dbo].[Outbox_Stream]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Stream] (
        StreamId      BIGINT           NOT NULL,
        TopicKey      BIGINT           NOT NULL,
        NextAttemptAt DATETIME2(3)     NOT NULL,
        RunLast       BIGINT           NOT NULL CONSTRAINT [DF_Outbox_Stream_RunLast] DEFAULT (0),
        OwnerToken    UNIQUEIDENTIFIER NULL,
        Status        TINYINT          NOT NULL CONSTRAINT [DF_Outbox_Stream_Status] DEFAULT (0),
        CONSTRAINT [PK_Outbox_Stream] PRIMARY KEY CLUSTERED (StreamId),
        CONSTRAINT [CK_Outbox_Stream_Held] CHECK ((Status = 1 AND OwnerToken IS NOT NULL) OR (Status <> 1 AND OwnerToken IS NULL))
    );
GO
-- Only streams that may be served, those that have waited longest first.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Stream]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Stream_Ready]', 1))) = PARSENAME(N'[IX_Outbox_Stream_Ready]', 1))
    CREATE INDEX [IX_Outbox_Stream_Ready] ON [dbo].[Outbox_Stream] (TopicKey, NextAttemptAt, StreamId) WHERE Status = 0;

IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox_Stream]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Stream_Blocked]', 1))) = PARSENAME(N'[IX_Outbox_Stream_Blocked]', 1))
    CREATE INDEX [IX_Outbox_Stream_Blocked] ON [dbo].[Outbox_Stream] (TopicKey, StreamId) WHERE Status = 2;
GO
IF OBJECT_ID(N'[dbo].[Outbox_Queue]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Queue] (
        StreamId BIGINT NOT NULL,
        Seq      BIGINT NOT NULL,
        CONSTRAINT [PK_Outbox_Queue] PRIMARY KEY CLUSTERED (StreamId, Seq)
    );
GO
