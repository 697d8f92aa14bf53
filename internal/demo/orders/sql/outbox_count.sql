-- Messages by status.
SELECT Status, COUNT(*) FROM {outbox_state} GROUP BY Status
