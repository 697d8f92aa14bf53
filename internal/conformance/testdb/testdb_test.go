package testdb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestOpenIsolatesAndReopenShares(t *testing.T) {
	for _, b := range testdb.Backends(t) {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			one, other := b.Open(t), b.Open(t)
			for _, db := range []*testdb.DB{one, other} {
				_, err := db.ExecContext(ctx, "CREATE TABLE "+qualified(db, "item")+" (id INT NOT NULL)")
				require.NoError(t, err)
			}
			_, err := one.ExecContext(ctx, "INSERT INTO "+qualified(one, "item")+" (id) VALUES (1)")
			require.NoError(t, err)

			require.Equal(t, 1, count(t, one.Reopen(t)))
			require.Equal(t, 0, count(t, other))
		})
	}
}

func TestSchemaIsDroppedWithAllInIt(t *testing.T) {
	for _, b := range testdb.Backends(t) {
		if b.Name == testdb.SQLite {
			continue // has a file instead, which testing removes
		}
		t.Run(b.Name, func(t *testing.T) {
			var schema string
			t.Run("fill", func(t *testing.T) {
				db := b.Open(t)
				schema = db.Schema
				statements := []string{
					"CREATE TABLE {a} (id INT NOT NULL, CONSTRAINT pk_a PRIMARY KEY (id))",
					"CREATE TABLE {b} (id INT NOT NULL, CONSTRAINT fk_b FOREIGN KEY (id) REFERENCES {a} (id))",
					"CREATE VIEW {v} AS SELECT id FROM {a}",
				}
				if b.Name == testdb.SQLServer {
					statements = append(statements,
						"CREATE PROCEDURE {p} AS SELECT id FROM {a}",
						"CREATE FUNCTION {f} () RETURNS INT AS BEGIN RETURN 1 END")
				}
				for _, statement := range statements {
					for _, name := range []string{"a", "b", "v", "p", "f"} {
						statement = strings.ReplaceAll(statement, "{"+name+"}", qualified(db, name))
					}
					_, err := db.ExecContext(t.Context(), statement)
					require.NoError(t, err, statement)
				}
			})
			db := b.Open(t)
			var left int
			require.NoError(t, db.QueryRowContext(t.Context(),
				"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+schema+"'").Scan(&left))
			require.Zero(t, left, "the schema %s is still there", schema)
		})
	}
}

func qualified(d *testdb.DB, table string) string {
	if d.Schema == "" {
		return table
	}
	return d.Schema + "." + table
}

func count(t *testing.T, db *testdb.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+qualified(db, "item")).Scan(&n))
	return n
}
