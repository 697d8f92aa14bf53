-- What has been applied.
SELECT version, checksum FROM "public"."outbox_migrations";
