-- Bare publishing: many messages, five parameters each.
WITH added AS (
    INSERT INTO {{.Outbox}} (message_id, uuid, topic, payload, topic_key) VALUES
    {{range $i, $row := .Rows}}{{if $i}}, {{end}}(${{.ID}}, ${{.UUID}}, ${{.Topic}}, ${{.Payload}}, ${{.Key}}){{end}}
    RETURNING seq, topic_key)
INSERT INTO {{.State}} (seq, topic_key, next_attempt_at) SELECT seq, topic_key, now() FROM added;
