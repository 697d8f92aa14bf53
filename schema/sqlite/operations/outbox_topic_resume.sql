-- Resumes a paused topic; returns whether it was paused.
DELETE FROM "main"."outbox_paused" WHERE topic_key = ?1 ->> '$.topic_key';

SELECT changes() > 0;
