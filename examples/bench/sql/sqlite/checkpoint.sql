-- Lets no run pay for what another has written.
PRAGMA wal_checkpoint(TRUNCATE);
