-- Begins a join with counters of zero. Without expected it is open: steps are added until it is sealed.
INSERT INTO "main"."outbox_join" (join_id, grouping_key, expected_steps, quorum, fail_fast, created_at, last_updated_at, metadata)
SELECT ?1 ->> '$.id', ?1 ->> '$.grouping_key', ?1 ->> '$.expected', ?1 ->> '$.quorum', ?1 ->> '$.fail_fast', c.moment, c.moment,
       ?1 ->> '$.metadata'
FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c;

INSERT INTO "main"."outbox_join_size" (join_id) VALUES (?1 ->> '$.id');
