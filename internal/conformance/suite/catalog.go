package suite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// What the database's catalog knows of an outbox.

//go:embed catalog
var catalogFiles embed.FS

// Catalog lists everything in the schema with its definition, the same text for the same schema under another name.
func (f *Fixture) Catalog() (lines []string) {
	f.T.Helper()
	definitions, err := fs.Glob(catalogFiles, path.Join("catalog", f.DB.Name, "definitions", "*.sql"))
	f.NoError(err)
	for _, file := range definitions {
		found, err := f.Strings(f.DB, f.catalogQuery(path.Join("definitions", path.Base(file))))
		f.NoError(err, file)
		for _, line := range found {
			line = strings.ReplaceAll(line, f.Schema(), "SCHEMA")
			line = strings.Join(strings.Fields(line), " ") // how a script is cut into batches changes no more than white space
			lines = append(lines, generated.ReplaceAllString(line, "GENERATED"))
		}
	}
	return lines
}

// Names that a server makes up contain a hash or a number.
var generated = regexp.MustCompile(`[0-9a-f]{32}|_[0-9]{4,}\b`)

// SameCatalog asserts that two catalogs are the same, and tells only what is not.
func (f *Fixture) SameCatalog(want, got []string) {
	f.T.Helper()
	f.NotEmpty(want)
	only := func(here, there []string) (lines []string) {
		for _, line := range here {
			if !slices.Contains(there, line) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	f.Empty(only(want, got), "missing")
	f.Empty(only(got, want), "too much")
	f.Len(got, len(want))
}

// Names lists the objects of a kind in the schema: table, index, view or procedure.
func (f *Fixture) Names(kind string) []string {
	f.T.Helper()
	names, err := f.Strings(f.DB, f.catalogQuery("names.sql", "{kind}", kind))
	f.NoError(err)
	return names
}

// catalogQuery is a query of the folder that catalog has for the database. Replacements are names in braces and their values.
func (f *Fixture) catalogQuery(file string, replacements ...string) string {
	f.T.Helper()
	text, err := catalogFiles.ReadFile(path.Join("catalog", f.DB.Name, file))
	f.NoError(err)
	return strings.NewReplacer(append(replacements, "{schema}", Literal(f.Schema()))...).Replace(string(text))
}

// Strings is the only column that a query returns.
func (f *Fixture) Strings(db *testdb.DB, query string) (values []string, err error) {
	rows, err := db.QueryContext(f.Context(), query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var value sql.NullString
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value.String)
	}
	return values, rows.Err()
}

// Run runs a printed script on one connection, as a tool of the database would: batch by batch.
func (f *Fixture) Run(script string) error {
	f.T.Helper()
	conn, err := f.DB.Conn(f.Context())
	f.NoError(err)
	defer func() { f.NoError(conn.Close()) }()
	for _, batch := range Batches(f.Config.Dialect.Traits().BatchSeparator, script) {
		if _, err := conn.ExecContext(f.Context(), batch); err != nil {
			return fmt.Errorf("%w in\n%s", err, batch)
		}
	}
	return nil
}

// Batches splits a script at the lines that hold nothing but the separator.
func Batches(separator, script string) (list []string) {
	if separator == "" {
		return []string{script}
	}
	var batch strings.Builder
	for line := range strings.Lines(script) {
		if strings.TrimSpace(line) != separator {
			batch.WriteString(line)
			continue
		}
		list = append(list, batch.String())
		batch.Reset()
	}
	if rest := batch.String(); strings.TrimSpace(rest) != "" {
		list = append(list, rest)
	}
	return list
}

// User creates a user without login, in a role if one is given, until the test ends.
func (f *Fixture) User(role string) string {
	f.T.Helper()
	name := fmt.Sprintf("user_%s_%d", f.DB.Schema, len(role))
	create, grant, revoke := "CREATE ROLE "+name, "GRANT "+role+" TO "+name, "DROP ROLE "+name
	if f.DB.Name == testdb.SQLServer {
		create, grant, revoke = "CREATE USER "+name+" WITHOUT LOGIN", "ALTER ROLE "+role+" ADD MEMBER "+name, "DROP USER "+name
	}
	f.Exec("%s", create)
	if role != "" {
		f.Exec("%s", grant)
	}
	f.T.Cleanup(func() { f.Drop(revoke) })
	return name
}

// LacksRightTo runs statements as a user and returns those that are refused.
func (f *Fixture) LacksRightTo(user string, statements ...string) (refused []string) {
	f.T.Helper()
	conn, err := f.DB.Reopen(f.T).Conn(f.Context())
	f.NoError(err)
	defer func() { f.NoError(conn.Close()) }()
	become, back := "SET ROLE "+user, "RESET ROLE"
	if f.DB.Name == testdb.SQLServer {
		become, back = "EXECUTE AS USER = '"+user+"'", "REVERT"
	}
	f.ExecOn(conn, "%s", become)
	for _, statement := range statements {
		err := f.readToTheEnd(conn, f.SQL("%s", strings.ReplaceAll(statement, "{outbox}", f.SQL("{outbox}"))))
		if err == nil {
			continue
		}
		var state interface{ SQLState() string }
		if errors.As(err, &state) {
			f.Equal("42501", state.SQLState(), "%s: %v", statement, err)
		}
		refused = append(refused, fmt.Sprintf("%s: %v", statement, err))
	}
	f.ExecOn(conn, "%s", back)
	return refused
}

func (f *Fixture) readToTheEnd(x outbox.Executor, statement string) (err error) {
	rows, err := x.QueryContext(f.Context(), statement)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() { // what it answers does not matter
	}
	return rows.Err()
}

// Install opens a database of its own with an outbox in it.
func Install(t testing.TB, backend testdb.Backend) (*testdb.DB, *outbox.Outbox) {
	t.Helper()
	db, d := backend.Open(t), testoutbox.Dialect(backend.Name)
	require.NoError(t, outbox.Migrate(t.Context(), db.DB, outbox.MigrateConfig{Dialect: d, Schema: db.Schema}))
	o, err := outbox.New(db.DB, outbox.Config{Dialect: d, Schema: db.Schema}, nil)
	require.NoError(t, err)
	return db, o
}

// CallOf is the statement that calls a procedure with its argument, and with more values as the database writes them.
func (f *Fixture) CallOf(name, argument string, more ...string) string {
	f.T.Helper()
	return f.callOf(name, append([]string{f.Either("'", "N'") + argument + "'"}, more...)...)
}

func (f *Fixture) callOf(name string, arguments ...string) string {
	f.T.Helper()
	return f.catalogQuery("call.sql", "{procedure}", f.Object(f.Either("outbox_", "Outbox_")+name), "{arguments}", strings.Join(arguments, ", "))
}

// Lower writes names in small letters.
func Lower(names []string) []string {
	return strings.Fields(strings.ToLower(strings.Join(names, " ")))
}

// Another is a second empty database or schema of the same backend.
func (f *Fixture) Another() *testdb.DB {
	f.T.Helper()
	for _, b := range testdb.Backends(f.T) {
		if b.Name == f.DB.Name {
			return b.Open(f.T)
		}
	}
	return nil
}

// InSchema lets the fixture use a schema that the library is to create, and drops it at the end.
func (f *Fixture) InSchema(schema string) {
	f.T.Helper()
	f.Config.Schema = schema
	f.Outbox = f.NewOutbox(f.DB.DB)
	f.T.Cleanup(func() {
		if f.DB.Name == testdb.SQLServer {
			f.DropObjects()
			f.Drop("DROP SCHEMA " + f.Config.Dialect.Quote(schema))
		} else {
			f.Drop("DROP SCHEMA IF EXISTS " + f.Config.Dialect.Quote(schema) + " CASCADE")
		}
	})
	f.T.Cleanup(f.CheckInvariants)
}

// Drop drops something, even once the test is over.
func (f *Fixture) Drop(statement string) {
	if _, err := f.DB.ExecContext(context.WithoutCancel(f.Context()), statement); err != nil {
		f.T.Errorf("%s: %v", statement, err)
	}
}

// DropObjects drops all that is in the schema, on SQL Server, what was created last first. It quotes the names itself.
func (f *Fixture) DropObjects() {
	rows, err := f.DB.QueryContext(context.WithoutCancel(f.Context()), f.catalogQuery("droppable.sql"), f.Schema())
	if err != nil {
		f.T.Errorf("listing the schema: %v", err)
		return
	}
	defer func() { _ = rows.Close() }() // rows.Err tells
	var drops []string
	for rows.Next() {
		var kind, name string
		if err := rows.Scan(&kind, &name); err != nil {
			f.T.Errorf("listing the schema: %v", err)
		}
		drops = append(drops, "DROP "+kind+" "+f.Config.Dialect.Quote(f.Schema())+"."+f.Config.Dialect.Quote(name))
	}
	if err := rows.Err(); err != nil {
		f.T.Errorf("listing the schema: %v", err)
	}
	for _, drop := range drops {
		f.Drop(drop)
	}
}

// Works goes once through everything that an outbox can do.
func (f *Fixture) Works() {
	f.T.Helper()
	f.Migrate()
	f.Migrate()
	ids := f.EnqueueN("orders", 4)
	claimed := f.Claim("orders")
	f.Equal(ids, MessageIDs(claimed))
	refused, err := f.Outbox.Renew(f.Context(), 1e9, claimed[0].Receipt)
	f.NoError(err)
	f.Empty(refused)
	f.Empty(f.Settle(append(Settled(outbox.Ack, claimed[0]), append(Settled(outbox.Fail, claimed[1]), Settled(outbox.Release, claimed[2])...)...)...))
	f.ExpireLeases()
	n, err := f.Outbox.ReapExpired(f.Context())
	f.NoError(err)
	f.Equal(1, n)
	n, err = f.Outbox.Requeue(f.Context(), outbox.RequeueParams{All: true})
	f.NoError(err)
	f.Equal(1, n)
	f.Exec("%s", statement("age_contents"))
	f.ExecStates("%s", statement("age_done"))
	n, err = f.Outbox.Purge(f.Context(), outbox.PurgeParams{})
	f.NoError(err)
	f.Equal(1, n)
	topics, err := f.Outbox.Topics(f.Context())
	f.NoError(err)
	f.Len(topics, 1)
	records, err := f.Outbox.Get(f.Context(), ids...)
	f.NoError(err)
	f.Len(records, 3)
	deleting := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
	claimed = f.Claim("orders")
	f.Len(claimed, 3)
	_, err = deleting.Settle(f.Context(), f.DB.DB, Settled(outbox.Ack, claimed...))
	f.NoError(err)
	f.Equal(0, f.Count())
	if !f.WithoutJoins {
		f.JoinsWork()
	}
}

// Call calls a procedure and returns the first column of its result.
func (f *Fixture) Call(name string, args ...any) (first []string) {
	f.T.Helper()
	parameters := make([]string, len(args))
	for i := range args {
		parameters[i] = f.Either("$", "@p") + strconv.Itoa(i+1)
	}
	statement := f.callOf(name, parameters...)
	rows, err := f.DB.QueryContext(f.Context(), statement, args...)
	f.NoError(err, statement)
	defer func() { f.NoError(rows.Close()) }()
	columns, err := rows.Columns()
	f.NoError(err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.RawBytes)
		}
		f.NoError(rows.Scan(values...))
		value, ok := values[0].(*sql.RawBytes)
		f.True(ok)
		first = append(first, string(*value))
	}
	f.NoError(rows.Err())
	return first
}
