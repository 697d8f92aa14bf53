-- Bare publishing: many messages, five parameters each.
INSERT INTO {{.Outbox}} (MessageId, Uuid, Topic, Payload, TopicKey)
OUTPUT inserted.Seq, inserted.TopicKey, SYSUTCDATETIME() INTO {{.State}} (Seq, TopicKey, NextAttemptAt)
VALUES
{{range $i, $row := .Rows}}{{if $i}}, {{end}}(@p{{.ID}}, @p{{.UUID}}, @p{{.Topic}}, @p{{.Payload}}, @p{{.Key}}){{end}};
