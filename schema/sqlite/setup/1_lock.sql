-- The migrations that have run; version 0 has the checksum of the operations.
CREATE TABLE IF NOT EXISTS "main"."outbox_migrations" (
    version    INTEGER NOT NULL PRIMARY KEY,
    checksum   TEXT    NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (unixepoch('now') * 1000)
);
-- Changes no row but takes the write lock, which keeps other migrations out until the transaction ends.
DELETE FROM "main"."outbox_migrations" WHERE 0;
