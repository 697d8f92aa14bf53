-- The migrations that have been applied.
SELECT Version, Checksum FROM [dbo].[Outbox_Migrations];
