-- All messages as they stand.
SELECT Uuid, Status FROM {outbox_view}
