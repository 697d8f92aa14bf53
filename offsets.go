package outbox

import "github.com/incursa/watermill-outbox/internal/seam"

func (l sqlServerLog) Begin(group, topic string) seam.Statement {
	return l.procedure("Outbox_Log_Begin", group, topic)
}

func (l sqlServerLog) Advance(group, topic string, position int64) seam.Statement {
	return l.procedure("Outbox_Log_Advance", group, topic, position)
}
