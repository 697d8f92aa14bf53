-- Remembers one migration. The two values marked by a comment are put in by the migrator.
INSERT INTO "public"."outbox_migrations" (version, checksum) VALUES (/*version*/ 0, /*checksum*/ '')
ON CONFLICT (version) DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp();
