-- The migrations that have run; version 0 has the checksum of the procedures.
IF OBJECT_ID(N'[dbo].[Outbox_Migrations]', N'U') IS NULL
    CREATE TABLE [dbo].[Outbox_Migrations] (
        Version   INT          NOT NULL,
        Checksum  VARCHAR(64)  NOT NULL,
        AppliedAt DATETIME2(3) NOT NULL CONSTRAINT [DF_Outbox_Migrations_AppliedAt] DEFAULT (SYSUTCDATETIME()),
        CONSTRAINT [PK_Outbox_Migrations] PRIMARY KEY CLUSTERED (Version)
    );
GO
