-- Messages that have another status.
SELECT COUNT(*) FROM outbox_state WHERE status <> ?
