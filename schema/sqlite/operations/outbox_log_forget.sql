-- Removes a consumer group with its dead letters, so that it no longer holds up purging; returns from how many topics.
DELETE FROM "main"."outbox_log_dead" WHERE group_name = ?1 ->> '$.group';

DELETE FROM "main"."outbox_log_group" WHERE group_name = ?1 ->> '$.group';

SELECT changes();
