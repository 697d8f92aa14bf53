-- Whether a message is on its way: two seeks, where OR in one condition would be a scan.
SELECT CASE WHEN EXISTS (SELECT 1 FROM {outbox_state} WHERE Status = 0)
                OR EXISTS (SELECT 1 FROM {outbox_state} WHERE Status = 1) THEN 1 ELSE 0 END
