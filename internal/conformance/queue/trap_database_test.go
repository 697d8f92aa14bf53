package queue_test

import (
	"database/sql"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
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
				own := &fixture{f.Database(t, statements)}
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

// The other way round: several outboxes in one transaction of one database.
func TestTrap_OneTransactionOverTwoOutboxes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := &fixture{suite.New(t, f.DB, "second")}
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
