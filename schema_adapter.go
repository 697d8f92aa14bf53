package outbox

import (
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// sqlServerLog is the log on SQL Server as statements for others to run: package watermillsql passes them to watermill-sql.
type sqlServerLog struct{ outbox *Outbox }

func newSQLServerLog(schema, table string) (seam.Log, error) {
	o, err := newOutbox(nil, Config{Dialect: SQLServer{}, Schema: schema, Table: table, Log: LogOnly}, nil)
	if err != nil {
		return nil, field.In("Config", err)
	}
	return sqlServerLog{o}, nil
}

// Insert is one call of a procedure for any number of messages.
func (l sqlServerLog) Insert(topic string, msgs message.Messages) (seam.Statement, error) {
	messages := make([]Message, len(msgs))
	for i, msg := range msgs {
		var err error
		if messages[i], err = fromWatermill(topic, msg); err != nil {
			return seam.Statement{}, err
		}
	}
	rows, _, err := l.outbox.prepare(messages)
	if err != nil {
		return seam.Statement{}, err
	}
	payloads := joinPayloads(messages, rows)
	arg, err := engine.Encode(rows)
	if err != nil {
		return seam.Statement{}, err
	}
	return l.procedure("Outbox_Log_Enqueue", arg, payloads), nil
}

func (l sqlServerLog) Next(group, topic string, limit int) seam.Statement {
	return l.procedure("Outbox_Log_Next", group, topic, limit)
}

func (l sqlServerLog) Scan(scan func(dest ...any) error) (position int64, headers string, msg *message.Message, err error) {
	var uuid string
	var payload []byte
	var text sql.NullString
	if err := scan(&position, &uuid, &payload, &text); err != nil {
		return 0, "", nil, err
	}
	metadata, err := decodeHeaders(text.String)
	if err != nil {
		return 0, "", nil, err
	}
	msg = message.NewMessage(uuid, payload)
	if metadata != nil {
		msg.Metadata = metadata
	}
	return position, text.String, msg, nil
}

func (l sqlServerLog) procedure(name string, args ...any) seam.Statement {
	return seam.Statement{Text: l.outbox.engine.Names.Qualified(name), Args: args}
}
