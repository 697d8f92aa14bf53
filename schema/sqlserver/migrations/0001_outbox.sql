-- The outbox: one row a message, from publishing to its end.
-- Seq is the physical key and grows with every insert, so that inserts go to the end of the table and claims stay cheap;
-- MessageId names the message for joins, inboxes and brokers.
-- NextAttemptAt is the one eligibility column: the due time of a new message, the backoff of one that failed.
-- Status: 0 ready, 1 in progress (leased), 2 done, 3 failed. Topics compare by code point, whatever the database's collation.
-- Indexes are guarded by themselves, so that one that was dropped comes back; by the beginning of their names, because a
-- compatible server adds to them.
IF OBJECT_ID(N'[dbo].[Outbox]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox] (
        Seq           BIGINT           IDENTITY(1, 1) NOT NULL,
        MessageId     UNIQUEIDENTIFIER NOT NULL,
        Uuid          NVARCHAR(255)    NOT NULL,
        Topic         NVARCHAR(255)    COLLATE Latin1_General_BIN2 NOT NULL,
        Payload       VARBINARY(MAX)   NOT NULL,
        Headers       NVARCHAR(MAX)    NULL,
        CorrelationId NVARCHAR(255)    NULL,
        StreamKey     NVARCHAR(255)    COLLATE Latin1_General_BIN2 NULL,
        CreatedAt     DATETIME2(3)     NOT NULL CONSTRAINT [DF_Outbox_CreatedAt] DEFAULT (SYSUTCDATETIME()),
        DueTimeUtc    DATETIME2(3)     NULL,
        NextAttemptAt DATETIME2(3)     NOT NULL CONSTRAINT [DF_Outbox_NextAttemptAt] DEFAULT (SYSUTCDATETIME()),
        Status        TINYINT          NOT NULL CONSTRAINT [DF_Outbox_Status] DEFAULT (0),
        LockedUntil   DATETIME2(3)     NULL,
        OwnerToken    UNIQUEIDENTIFIER NULL,
        RetryCount    INT              NOT NULL CONSTRAINT [DF_Outbox_RetryCount] DEFAULT (0),
        LastError     NVARCHAR(MAX)    NULL,
        ProcessedAt   DATETIME2(3)     NULL,
        ProcessedBy   NVARCHAR(100)    NULL,
        CONSTRAINT [PK_Outbox] PRIMARY KEY CLUSTERED (Seq),
        CONSTRAINT [UQ_Outbox_MessageId] UNIQUE NONCLUSTERED (MessageId),
        CONSTRAINT [CK_Outbox_Lease] CHECK (
            (Status = 1 AND OwnerToken IS NOT NULL AND LockedUntil IS NOT NULL)
            OR (Status <> 1 AND OwnerToken IS NULL AND LockedUntil IS NULL))
    );
GO
-- A claim is a range seek here: only ready rows are in it, in the order in which they are taken.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Ready]', 1))) = PARSENAME(N'[IX_Outbox_Ready]', 1))
    CREATE INDEX [IX_Outbox_Ready] ON [dbo].[Outbox] (Topic, NextAttemptAt, Seq) WHERE Status = 0;

-- Expired leases, oldest first.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Leased]', 1))) = PARSENAME(N'[IX_Outbox_Leased]', 1))
    CREATE INDEX [IX_Outbox_Leased] ON [dbo].[Outbox] (LockedUntil) INCLUDE (OwnerToken) WHERE Status = 1;

-- Ended rows by age, for purging and for listing what failed.
IF NOT EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(N'[dbo].[Outbox]')
               AND LEFT(i.name, LEN(PARSENAME(N'[IX_Outbox_Ended]', 1))) = PARSENAME(N'[IX_Outbox_Ended]', 1))
    CREATE INDEX [IX_Outbox_Ended] ON [dbo].[Outbox] (Status, ProcessedAt) WHERE Status >= 2;
GO
