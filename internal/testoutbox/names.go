package testoutbox

import (
	"strings"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Names are those of one outbox in a database of tests.
type Names struct {
	Backend       string // of testdb
	Schema, Table string // the outbox's; empty for the defaults
}

// Dialect is that of a backend of testdb.
func Dialect(backend string) outbox.Dialect {
	switch backend {
	case testdb.Postgres:
		return outbox.Postgres{}
	case testdb.SQLServer:
		return outbox.SQLServer{}
	default:
		return outbox.SQLite{}
	}
}

// InSchema is the name of the schema, where it is the default one, too.
func (n Names) InSchema() string {
	if n.Schema == "" {
		return Dialect(n.Backend).Traits().Schema
	}
	return n.Schema
}

// Object is the qualified and quoted name of an object of the outbox, given that of the default outbox.
func (n Names) Object(name string) string {
	d := Dialect(n.Backend)
	if n.Table != "" {
		name = strings.Replace(name, d.Traits().Table, n.Table, 1)
	}
	return d.Quote(n.InSchema()) + "." + d.Quote(name)
}

// Part is the name of one of the outbox's tables: the messages' own is "".
func (n Names) Part(name string) string {
	return n.Object(testdb.Part(n.Backend, Dialect(n.Backend).Traits().Table, name))
}

// Column is the name of a column.
func (n Names) Column(name string) string { return testdb.Column(n.Backend, name) }

// Of gives the meaning of a name in braces: {outbox}, {outbox_state}, {outbox_lease} and so on are tables, {all} is all
// messages as they stand, and any other a column.
func (n Names) Of(name string) string {
	switch name {
	case "outbox":
		return n.Part("")
	case "outbox_state", "outbox_lease", "outbox_worker", "outbox_stream", "outbox_queue", "outbox_arrival", "outbox_paused", "outbox_log_group":
		return n.Part(strings.TrimPrefix(name, "outbox_"))
	case "all":
		return testdb.Messages(n.Part, n.Column)
	default:
		return n.Column(name)
	}
}
