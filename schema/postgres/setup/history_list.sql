-- The migrations that have been applied.
SELECT version, checksum FROM "public"."outbox_migrations";
