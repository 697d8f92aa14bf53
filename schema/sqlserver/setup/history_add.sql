-- Records a migration. The migrator fills in the two values marked by a comment.
DELETE FROM [dbo].[Outbox_Migrations] WHERE Version = /*version*/ 0;
INSERT INTO [dbo].[Outbox_Migrations] (Version, Checksum) VALUES (/*version*/ 0, /*checksum*/ '');
GO
