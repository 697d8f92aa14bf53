-- Messages that are not done, and the most attempts that any has spent.
SELECT COUNT(*) FILTER (WHERE status <> 2), MAX(retry_count) FROM outbox_state
