package seam

import "github.com/ThreeDotsLabs/watermill/message"

// SQLServerLog returns the log of the outbox in this schema and table; empty names are the defaults. It returns an
// *outbox.FieldError of a Config if one of them is bad.
var SQLServerLog func(schema, table string) (Log, error)

// A Statement is text for the database, and its arguments.
type Statement struct {
	Text string
	Args []any
}

// A Log is what package watermillsql builds its adapters on: statements that watermill-sql runs itself.
type Log interface {
	// Insert publishes messages into the log.
	Insert(topic string, msgs message.Messages) (Statement, error)

	// Next reads up to limit messages after the group's position, for Scan.
	Next(group, topic string, limit int) Statement

	// Scan reads a row of Next: the message, its position, and the text of its headers.
	Scan(scan func(dest ...any) error) (position int64, headers string, msg *message.Message, err error)

	// Begin creates a group, or does nothing if it exists.
	Begin(group, topic string) Statement

	// Advance moves a group to a position.
	Advance(group, topic string, position int64) Statement
}
