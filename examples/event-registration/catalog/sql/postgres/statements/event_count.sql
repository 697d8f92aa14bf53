-- Takes over counters, unless those of a later revision are there: event, active, waiting, revision.
-- A message that comes late or twice changes nothing.
UPDATE catalog_event
SET active = $2, waiting = $3, revision = $4
WHERE event_id = $1 AND revision < $4;
