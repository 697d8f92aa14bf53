-- How many bytes of write-ahead log there have been. Those that are not yet written count too: which commits wait for the
-- disk is a setting.
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint;
