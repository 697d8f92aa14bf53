-- Keeps other migrations of this outbox out until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('"public"."outbox"', 0));
-- Whoever waits for a table lets nobody pass, so that publishers would wait as long for a caller's open transaction.
SET LOCAL lock_timeout = '500ms';
