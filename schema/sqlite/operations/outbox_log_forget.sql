-- Removes a consumer group, which then holds up no purge any more; answers of how many topics.
DELETE FROM "main"."outbox_log_group" WHERE group_name = ?1 ->> '$.group';

SELECT changes();
