-- Lists the paused topics: since when, who paused them, and why. Few topics are.
SELECT p.topic, p.paused_at, p.paused_by, p.reason FROM "main"."outbox_paused" AS p;
