-- Each query counts the states that break the sentence above it, on PostgreSQL.

-- ready and dead_at repeat the status
SELECT COUNT(*) FROM {outbox_state} r
WHERE r.ready <> (r.status = 0) OR r.dead_at IS DISTINCT FROM CASE r.status WHEN 3 THEN r.processed_at END;
