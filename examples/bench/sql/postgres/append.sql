-- Bare appending: one event, at the next version of its stream.
WITH moved AS (
    INSERT INTO {{.EventStream}} AS s (name, version) VALUES ($6, 1)
    ON CONFLICT (name) DO UPDATE SET version = s.version + 1
    RETURNING stream_no, version),
added AS (
    INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, topic_key) VALUES ($1, $2, $3, $4, $5)
    RETURNING seq, message_id, topic),
numbered AS (
    INSERT INTO {{.Event}} (stream_no, version, seq, size) SELECT m.stream_no, m.version, a.seq, octet_length($4) FROM moved AS m, added AS a)
INSERT INTO {{.LogPending}} (seq, message_id, topic) SELECT a.seq, a.message_id, a.topic FROM added AS a;
