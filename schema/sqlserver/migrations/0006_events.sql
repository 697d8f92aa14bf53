-- The event store: an event is a message of the log that also has a version in a stream. The stream's row is moved before
-- its events are inserted, and stays locked until the commit, so that versions have no gap, and Seq, Position and commit
-- follow them. The tables are always there: purging the log must know which of its messages stay.
--
-- Version is that of the last event. Events up to Hidden were deleted, those up to Purged are gone; a stream whose events are
-- all hidden counts as none, and goes on from its version. An archived stream takes no more events.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Stream]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Event_Stream] (
        Name     NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL,
        StreamNo BIGINT        IDENTITY(1, 1) NOT NULL,
        Version  BIGINT        NOT NULL,
        Hidden   BIGINT        NOT NULL CONSTRAINT [DF_Outbox_Event_Stream_Hidden] DEFAULT (0),
        Purged   BIGINT        NOT NULL CONSTRAINT [DF_Outbox_Event_Stream_Purged] DEFAULT (0),
        Archived BIT           NOT NULL CONSTRAINT [DF_Outbox_Event_Stream_Archived] DEFAULT (0),
        CONSTRAINT [PK_Outbox_Event_Stream] PRIMARY KEY CLUSTERED (Name),
        CONSTRAINT [UQ_Outbox_Event_Stream_StreamNo] UNIQUE NONCLUSTERED (StreamNo)
    );
GO
-- Size is that of payload and headers in bytes, so that a page can be cut without looking at them.
IF OBJECT_ID(N'[dbo].[Outbox_Event]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Event] (
        StreamNo BIGINT NOT NULL,
        Version  BIGINT NOT NULL,
        Seq      BIGINT NOT NULL,
        Size     INT    NOT NULL,
        CONSTRAINT [PK_Outbox_Event] PRIMARY KEY CLUSTERED (StreamNo, Version),
        CONSTRAINT [UQ_Outbox_Event_Seq] UNIQUE NONCLUSTERED (Seq)
    );
GO
-- How far the log holds nothing but events: purging, which leaves them, begins after that.
IF OBJECT_ID(N'[dbo].[Outbox_Event_Swept]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Event_Swept] (
        Id       TINYINT NOT NULL,
        Position BIGINT  NOT NULL,
        CONSTRAINT [PK_Outbox_Event_Swept] PRIMARY KEY CLUSTERED (Id)
    );
GO
INSERT INTO [dbo].[Outbox_Event_Swept] (Id, Position)
SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Event_Swept] AS w WHERE w.Id = 1);
GO
