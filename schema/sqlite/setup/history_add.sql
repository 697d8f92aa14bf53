-- Records a migration. The migrator fills in the two values marked by a comment.
INSERT OR REPLACE INTO "main"."outbox_migrations" (version, checksum) VALUES (/*version*/ 0, /*checksum*/ '');
