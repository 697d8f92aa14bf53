-- Bare publishing: many rows, four parameters each.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, created_at, next_attempt_at)
SELECT v.column1, v.column2, v.column3, v.column4, c.moment, c.moment
FROM (VALUES {{range $i, $row := .Rows}}{{if $i}}, {{end}}(?{{.ID}}, ?{{.UUID}}, ?{{.Topic}}, ?{{.Payload}}){{end}}) AS v,
     (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) AS moment) AS c;
