-- Takes back autovacuum_off.
ALTER TABLE {{.Outbox}} RESET (autovacuum_enabled, toast.autovacuum_enabled);
