-- Locks an event and reads it, with the database's time: event.
-- FOR UPDATE: whoever changes an event waits here, and nowhere else.
-- The wait for an idempotency key was short; this one lasts as long as the request.
SELECT event_id, version, title, organizer_id, status, capacity, waitlist_limit, active_count, waitlist_count, last_number, revision, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)
FROM registration_event, set_config('lock_timeout', '0', true)
WHERE event_id = $1
FOR UPDATE OF registration_event;
