-- What has been applied.
SELECT Version, Checksum FROM [dbo].[Outbox_Migrations];
