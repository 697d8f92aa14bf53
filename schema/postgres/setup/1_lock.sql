-- Keeps other migrations of this outbox out until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('"public"."outbox"', 0));
