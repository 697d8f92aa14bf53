-- Records a migration. The migrator fills in the two values marked by a comment.
INSERT INTO "public"."outbox_migrations" (version, checksum) VALUES (/*version*/ 0, /*checksum*/ '')
ON CONFLICT (version) DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp();
