package conformance

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The traps of how a database is set up: each test makes databases of its own.

// setUps are what databases are created with, by backend. {db} is the name.
var setUps = map[string]map[string][]string{
	testdb.SQLServer: {
		"RCSI on":               {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET READ_COMMITTED_SNAPSHOT ON"},
		"RCSI off":              {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET READ_COMMITTED_SNAPSHOT OFF"},
		"SNAPSHOT allowed":      {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET ALLOW_SNAPSHOT_ISOLATION ON"},
		"a Turkish collation":   {"CREATE DATABASE {db} COLLATE Turkish_100_CI_AS"},
		"a binary collation":    {"CREATE DATABASE {db} COLLATE Latin1_General_BIN2"},
		"a UTF-8 collation":     {"CREATE DATABASE {db} COLLATE Latin1_General_100_CI_AI_SC_UTF8"},
		"quoted identifier off": {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET QUOTED_IDENTIFIER OFF"},
	},
	testdb.Postgres: {
		"a Turkish collation":        {"CREATE DATABASE {db} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR'"},
		"a nondeterministic default": {"CREATE DATABASE {db} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'und-u-ks-level2'"},
		"serializable by default":    {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET default_transaction_isolation = 'serializable'"},
		"another search path":        {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET search_path = ''"},
		"another time zone":          {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET timezone = 'Pacific/Chatham'", "ALTER DATABASE {db} SET datestyle = 'German'"},
		"standard strings off":       {"CREATE DATABASE {db}", "ALTER DATABASE {db} SET standard_conforming_strings = off", "ALTER DATABASE {db} SET bytea_output = 'escape'"},
	},
}

func TestTrap_DatabasesThatAreSetUpOtherwise(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if setUps[f.DB.Name] == nil {
			f.Skip("databases with settings", "the connection has them all, and other tests change them")
		}
		for name, statements := range setUps[f.DB.Name] {
			t.Run(name, func(t *testing.T) {
				own := f.Database(t, statements)
				own.Works()
				own.EnqueueN("ılık", 1)
				own.EnqueueN("ilik", 1)
				own.EnqueueN("ILIK", 1)
				own.Len(own.Claim("ilik"), 1, "topics compare by code point")
				own.Clear()
				own.manyWorkers()
			})
		}
	})
}

// Database is an empty outbox in a database of its own, which is dropped when the test ends.
func (f *fixture) Database(t *testing.T, statements []string) *fixture {
	t.Helper()
	name := "outbox_" + strings.ToLower(rand.Text()[:10])
	for _, statement := range statements {
		statement = strings.ReplaceAll(statement, "{db}", name)
		if _, err := f.DB.ExecContext(f.Context(), statement); err != nil {
			f.T.Logf("%s: %v", statement, err)
			asked := &fixture{Assertions: f.Assertions, T: t, DB: f.DB, Config: f.Config}
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
		if _, err := own.DB.ExecContext(f.Context(), "DECLARE @Mixed TABLE (N INT); INSERT INTO @Mixed (N) VALUES (1)"); err != nil {
			own.Skip("table variables whose names have capitals", strings.SplitN(err.Error(), "\n", 2)[0])
		}
	}
	own.Migrate()
	return own
}

// dropDatabase waits for connections that have been closed but are still being taken leave of.
func (f *fixture) dropDatabase(t *testing.T, name string) {
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

// The other way round: several outboxes in one transaction of one database.
func TestTrap_OneTransactionOverTwoOutboxes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := New(t, f.DB, "second")
		other.Migrate()
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			for _, g := range []*fixture{f, other} {
				_, err := g.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "orders"})
				f.NoError(err)
			}
			f.end(tx, commit)
		}
		f.Equal(1, f.Count())
		f.Equal(1, other.Count())
	})
}

func (f *fixture) end(tx *sql.Tx, commit bool) {
	f.T.Helper()
	if commit {
		f.NoError(tx.Commit())
	} else {
		f.NoError(tx.Rollback())
	}
}
