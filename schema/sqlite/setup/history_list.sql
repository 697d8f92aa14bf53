-- What has been applied.
SELECT version, checksum FROM "main"."outbox_migrations";
