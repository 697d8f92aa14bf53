-- The messages that caused shipments.
SELECT message FROM {shipments}
