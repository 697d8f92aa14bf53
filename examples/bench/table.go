package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/template"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

// The statements, a folder a backend. They are templates: the table's name and, for lists of rows, the parameters'
// numbers are filled in.
//
//go:embed sql
var files embed.FS

// A table is the product's own, as outbox.Migrate creates it, with a name that nobody else uses.
type table struct {
	*sql.DB
	backend
	dsn, prefix string
	folder      string // of the temporary file, if that is what it is
}

func createTable(ctx context.Context, backendName, dsn string) (t *table, err error) {
	folder := ""
	if backendName == "sqlite" && dsn == "" {
		if folder, dsn, err = temporaryFile(); err != nil {
			return nil, err
		}
	}
	if t, err = openTable(ctx, backendName, dsn, "bench_"+strings.ToLower(rand.Text()[:6])); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	t.folder = folder
	if err := outbox.Migrate(ctx, t.DB, outbox.MigrateConfig{Dialect: t.dialect, Table: t.tableName()}); err != nil {
		return nil, errors.Join(err, t.drop())
	}
	return t, nil
}

func openTable(ctx context.Context, backendName, dsn, prefix string) (*table, error) {
	backend, err := findBackend(backendName)
	if err != nil {
		return nil, err
	}
	db, err := backend.open(ctx, dsn)
	if err != nil {
		return nil, err
	}
	return &table{DB: db, backend: backend, dsn: dsn, prefix: prefix}, nil
}

func (t *table) tableName() string { return t.prefix + "_outbox" }

// rowParameters are the numbers of the parameters of one row of a list.
type rowParameters struct{ ID, UUID, Topic, Payload, Key int }

// statement reads a statement and fills it in. rows is for the one that takes a list.
func (t *table) statement(name string, rows int) (string, error) {
	text, err := fs.ReadFile(files, "sql/"+t.name+"/"+name+".sql")
	if err != nil {
		return "", err
	}
	parsed, err := template.New(name).Parse(string(text))
	if err != nil {
		return "", err
	}
	data := struct {
		Outbox, State, Lease, Attempt, Join, JoinMember, JoinSize, JoinWait, Stream, Queue, Arrival, Settle, Claim string

		Event, EventStream, LogPending string

		Rows []rowParameters
	}{
		Outbox: t.quoted("", ""), State: t.quoted("_state", "_State"), Lease: t.quoted("_lease", "_Lease"), Attempt: t.quoted("_attempt", "_Attempt"),
		Join: t.quoted("_join", "Join"), JoinMember: t.quoted("_join_member", "JoinMember"),
		JoinSize: t.quoted("_join_size", "JoinSize"), JoinWait: t.quoted("_join_wait", "JoinWait"),
		Settle: t.quoted("_settle", "_Settle"), Claim: t.quoted("_claim", "_Claim"),
		Stream: t.quoted("_stream", "_Stream"), Queue: t.quoted("_queue", "_Queue"), Arrival: t.quoted("_arrival", "_Arrival"),
		Event: t.quoted("_event", "_Event"), EventStream: t.quoted("_event_stream", "_Event_Stream"), LogPending: t.quoted("_log_pending", "_Log_Pending"),
	}
	for i := range rows {
		data.Rows = append(data.Rows, rowParameters{5*i + 1, 5*i + 2, 5*i + 3, 5*i + 4, 5*i + 5})
	}
	var filled strings.Builder
	err = parsed.Execute(&filled, data)
	return filled.String(), err
}

// quoted is the name of one of the product's tables; its ending is another on SQL Server.
func (t *table) quoted(ending, onSQLServer string) string {
	if t.dialect == (outbox.SQLServer{}) {
		ending = onSQLServer
	}
	return t.dialect.Quote(t.dialect.Traits().Schema) + "." + t.dialect.Quote(t.tableName()+ending)
}

// has reports whether the backend has a statement of that name.
func (t *table) has(name string) bool {
	_, err := fs.Stat(files, "sql/"+t.name+"/"+name+".sql")
	return err == nil
}

// execute runs a statement that answers nothing.
func (t *table) execute(ctx context.Context, name string, args ...any) error {
	text, err := t.statement(name, 0)
	if err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, text, args...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// clear empties the product's tables. A call that was cancelled by Close may still run on the server, and have locked them in
// another order.
func (t *table) clear(ctx context.Context) error {
	for {
		if err := t.execute(ctx, "clear"); !outbox.IsRetryable(err) || ctx.Err() != nil {
			return err
		}
	}
}

// query gives each row of a statement's answer to scan.
func (t *table) query(ctx context.Context, name string, scan func(*sql.Rows) error, args ...any) (err error) {
	text, err := t.statement(name, 0)
	if err != nil {
		return err
	}
	rows, err := t.QueryContext(ctx, text, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return rows.Err()
}

// drop drops all that has the prefix, and closes the pool.
func (t *table) drop() error {
	// The measurement's own context may have ended, and that must not leave anything behind.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := stage.Drop(ctx, t.DB, t.dialect, t.prefix)
	return errors.Join(err, t.Close(), os.RemoveAll(t.folder))
}
