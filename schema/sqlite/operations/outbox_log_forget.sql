-- Removes a consumer group with the dead letters that are left, so that it no longer holds up purging; returns from how many
-- topics. Most dead letters were discarded in batches before.
DELETE FROM "main"."outbox_log_dead" WHERE group_name = ?1 ->> '$.group';

DELETE FROM "main"."outbox_log_group" WHERE group_name = ?1 ->> '$.group';

SELECT changes();
