-- Remembers one migration. The two values marked by a comment are put in by the migrator.
DELETE FROM [dbo].[Outbox_Migrations] WHERE Version = /*version*/ 0;
INSERT INTO [dbo].[Outbox_Migrations] (Version, Checksum) VALUES (/*version*/ 0, /*checksum*/ '');
GO
