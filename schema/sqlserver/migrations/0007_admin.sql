-- What operators do: topics that are paused, and a record of what was done. Claims look here, so the tables are always there.
--
-- Nothing of a paused topic is claimed. TopicKey is that of the messages, so that a claim needs no text.
IF OBJECT_ID(N'[dbo].[Outbox_Paused]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Paused] (
        TopicKey BIGINT         NOT NULL,
        Topic    NVARCHAR(255)  COLLATE Latin1_General_BIN2 NOT NULL,
        PausedAt DATETIME2(3)   NOT NULL CONSTRAINT [DF_Outbox_Paused_PausedAt] DEFAULT (SYSUTCDATETIME()),
        PausedBy NVARCHAR(255)  NOT NULL,
        Reason   NVARCHAR(1000) NOT NULL,
        CONSTRAINT [PK_Outbox_Paused] PRIMARY KEY CLUSTERED (TopicKey)
    );
GO
-- One row an act of an operator; each of its batches adds to Affected. Selection says in words what it was done to.
IF OBJECT_ID(N'[dbo].[Outbox_Audit]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Audit] (
        AuditNo    BIGINT         IDENTITY(1, 1) NOT NULL,
        HappenedAt DATETIME2(3)   NOT NULL CONSTRAINT [DF_Outbox_Audit_HappenedAt] DEFAULT (SYSUTCDATETIME()),
        Actor      NVARCHAR(255)  NOT NULL,
        Act        NVARCHAR(100)  NOT NULL,
        Selection  NVARCHAR(2000) NOT NULL,
        Affected   INT            NOT NULL,
        CONSTRAINT [PK_Outbox_Audit] PRIMARY KEY CLUSTERED (AuditNo)
    );
GO
