-- Bare publishing: many rows, four parameters each.
INSERT INTO {{.Outbox}} (MessageId, Uuid, Topic, Payload) VALUES
{{range $i, $row := .Rows}}{{if $i}}, {{end}}(@p{{.ID}}, @p{{.UUID}}, @p{{.Topic}}, @p{{.Payload}}){{end}};
