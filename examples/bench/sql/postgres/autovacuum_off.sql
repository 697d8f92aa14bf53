-- Keeps what cleans up after others out of the log that a run writes.
ALTER TABLE {{.Outbox}} SET (autovacuum_enabled = off, toast.autovacuum_enabled = off);
