-- Bare publishing: many rows, four parameters each.
INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload) VALUES
{{range $i, $row := .Rows}}{{if $i}}, {{end}}(${{.ID}}, ${{.UUID}}, ${{.Topic}}, ${{.Payload}}){{end}};
