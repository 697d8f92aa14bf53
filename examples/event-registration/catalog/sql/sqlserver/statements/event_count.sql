-- Takes over counters, unless those of a later revision are there: event, active, waiting, revision.
-- A message that comes late or twice changes nothing.
UPDATE catalog_event
SET active = @p2, waiting = @p3, revision = @p4
WHERE event_id = @p1 AND revision < @p4;
