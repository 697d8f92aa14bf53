-- Bare publishing: many messages, five parameters each.
BEGIN IMMEDIATE;

INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, topic_key, created_at)
SELECT v.column1, v.column2, v.column3, v.column4, v.column5, c.moment
FROM (VALUES {{range $i, $row := .Rows}}{{if $i}}, {{end}}(?{{.ID}}, ?{{.UUID}}, ?{{.Topic}}, ?{{.Payload}}, ?{{.Key}}){{end}}) AS v,
     (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c;

INSERT INTO {{.State}} (seq, topic_key, next_attempt_at)
SELECT o.seq, o.topic_key, o.created_at FROM {{.Outbox}} AS o WHERE o.seq > last_insert_rowid() - {{len .Rows}};

COMMIT;
