package suite

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Database is an empty outbox in a database of its own, which is dropped when the test ends.
func (f *Fixture) Database(t *testing.T, statements []string) *Fixture {
	t.Helper()
	name := "outbox_" + strings.ToLower(rand.Text()[:10])
	for _, statement := range statements {
		statement = strings.ReplaceAll(statement, "{db}", name)
		if _, err := f.DB.ExecContext(f.Context(), statement); err != nil {
			f.T.Logf("%s: %v", statement, err)
			asked := &Fixture{Assertions: f.Assertions, T: t, DB: f.DB, Config: f.Config}
			asked.Skip("a database of its own", statement[:strings.Index(statement+" ", name)]+"…: "+strings.SplitN(err.Error(), "\n", 2)[0])
		}
		if strings.HasPrefix(statement, "CREATE") {
			t.Cleanup(func() { f.dropDatabase(t, name) })
		}
	}
	db := *f.DB
	dsn, err := url.Parse(db.DSN)
	f.NoError(err)
	if db.Name == testdb.SQLServer {
		query := dsn.Query()
		query.Set("database", name)
		dsn.RawQuery = query.Encode()
	} else {
		dsn.Path = "/" + name
	}
	db.DSN, db.Schema = dsn.String(), ""
	own := New(t, db.Reopen(t), "")
	own.WithoutJoins, own.WithInbox = f.WithoutJoins, f.WithInbox
	if db.Name == testdb.SQLServer {
		if _, err := own.DB.ExecContext(f.Context(), own.catalogQuery("table_variable.sql")); err != nil {
			own.Skip("table variables whose names have capitals", strings.SplitN(err.Error(), "\n", 2)[0])
		}
	}
	own.Migrate()
	return own
}

// dropDatabase waits for connections that have been closed but are still being taken leave of.
func (f *Fixture) dropDatabase(t *testing.T, name string) {
	statement := "DROP DATABASE " + name
	if f.DB.Name == testdb.Postgres {
		statement += " WITH (FORCE)"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.Context()), Patience)
	defer cancel()
	for {
		_, err := f.DB.ExecContext(ctx, statement)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s: %v", statement, errors.Join(err, ctx.Err()))
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Alone is the same outbox, installed where no one else's snapshot keeps dead rows: on PostgreSQL in a database of its own.
func (f *Fixture) Alone() *Fixture {
	f.T.Helper()
	if f.DB.Name == testdb.Postgres {
		return f.Database(f.T, []string{"CREATE DATABASE {db}"})
	}
	f.Migrate()
	return f
}
