-- Removes a consumer group, so that it no longer holds up purging; returns from how many topics. Its dead letters have been
-- discarded in batches before: what is deleted here is what a reader has added since.
DELETE FROM "main"."outbox_log_dead" WHERE group_name = ?1 ->> '$.group';

DELETE FROM "main"."outbox_log_group" WHERE group_name = ?1 ->> '$.group';

SELECT changes();
