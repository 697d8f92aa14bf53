-- Bare appending: one event, at the next version of its stream.
BEGIN IMMEDIATE;

INSERT INTO {{.EventStream}} (name, version) VALUES (?6, 1) ON CONFLICT (name) DO UPDATE SET version = version + 1;

INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, topic_key, created_at) VALUES (?1, ?2, ?3, ?4, ?5, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER));

INSERT INTO {{.LogPending}} (seq, message_id, topic) VALUES (last_insert_rowid(), ?1, ?3);

INSERT INTO {{.Event}} (stream_no, version, seq, size)
SELECT s.stream_no, s.version, o.seq, length(?4) FROM {{.EventStream}} AS s, {{.Outbox}} AS o WHERE s.name = ?6 AND o.message_id = ?1;

COMMIT;
