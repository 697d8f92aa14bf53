-- The migrations that have been applied.
SELECT version, checksum FROM "main"."outbox_migrations";
