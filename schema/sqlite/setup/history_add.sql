-- Remembers one migration. The two values marked by a comment are put in by the migrator.
INSERT OR REPLACE INTO "main"."outbox_migrations" (version, checksum) VALUES (/*version*/ 0, /*checksum*/ '');
