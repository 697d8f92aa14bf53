-- Corrects the columns that repeat the status for the indexes of PostgreSQL, where they are wrong.
UPDATE {outbox_state} AS r
SET ready = (status = 0), dead_at = CASE status WHEN 3 THEN processed_at END
WHERE r.ready <> (r.status = 0) OR r.dead_at IS DISTINCT FROM CASE r.status WHEN 3 THEN r.processed_at END;
