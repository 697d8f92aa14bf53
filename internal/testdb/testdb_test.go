package testdb

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAvailable(t *testing.T) {
	const pg, ms = "OUTBOX_TEST_POSTGRES_DSN", "OUTBOX_TEST_SQLSERVER_DSN"
	const only, required = "OUTBOX_TEST_ONLY", "OUTBOX_TEST_REQUIRE"
	for name, test := range map[string]struct {
		env     map[string]string
		want    []string
		wantErr string
	}{
		"nothing set":               {nil, []string{SQLite}, ""},
		"all":                       {map[string]string{pg: "p", ms: "m"}, []string{SQLite, Postgres, SQLServer}, ""},
		"one left":                  {map[string]string{pg: "p", ms: "m", only: "postgres"}, []string{Postgres}, ""},
		"two left, with a space":    {map[string]string{pg: "p", ms: "m", only: "sqlserver, sqlite"}, []string{SQLite, SQLServer}, ""},
		"required and there":        {map[string]string{pg: "p", required: "sqlite,postgres"}, []string{SQLite, Postgres}, ""},
		"required and missing":      {map[string]string{pg: "p", required: "sqlite,sqlserver"}, nil, "OUTBOX_TEST_SQLSERVER_DSN"},
		"required and left out":     {map[string]string{pg: "p", required: "postgres", only: "sqlite"}, nil, "OUTBOX_TEST_ONLY"},
		"only one that is missing":  {map[string]string{only: "postgres"}, nil, "leaves none"},
		"the broker is no database": {map[string]string{pg: "p", required: "rabbitmq", only: "rabbitmq,postgres"}, []string{Postgres}, ""},
		"only the broker":           {map[string]string{only: "rabbitmq"}, nil, "leaves none"},
		"a misspelt name":           {map[string]string{pg: "p", required: "postgresql"}, nil, `no backend "postgresql"`},
	} {
		t.Run(name, func(t *testing.T) {
			backends, err := available(func(key string) string { return test.env[key] })
			if test.wantErr != "" {
				require.ErrorContains(t, err, test.wantErr)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, b := range backends {
				got = append(got, b.Name)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestOpenIsolatesAndReopenShares(t *testing.T) {
	for _, b := range Backends(t) {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			one, other := b.Open(t), b.Open(t)
			for _, db := range []*DB{one, other} {
				_, err := db.ExecContext(ctx, "CREATE TABLE "+db.qualified("item")+" (id INT NOT NULL)")
				require.NoError(t, err)
			}
			_, err := one.ExecContext(ctx, "INSERT INTO "+one.qualified("item")+" (id) VALUES (1)")
			require.NoError(t, err)

			require.Equal(t, 1, count(t, one.Reopen(t)))
			require.Equal(t, 0, count(t, other))
		})
	}
}

func TestSchemaIsDroppedWithAllInIt(t *testing.T) {
	for _, b := range Backends(t) {
		if b.Name == SQLite {
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
				if b.Name == SQLServer {
					statements = append(statements,
						"CREATE PROCEDURE {p} AS SELECT id FROM {a}",
						"CREATE FUNCTION {f} () RETURNS INT AS BEGIN RETURN 1 END")
				}
				for _, statement := range statements {
					for _, name := range []string{"a", "b", "v", "p", "f"} {
						statement = strings.ReplaceAll(statement, "{"+name+"}", db.qualified(name))
					}
					_, err := db.ExecContext(t.Context(), statement)
					require.NoError(t, err, statement)
				}
			})
			db := b.Open(t)
			err := db.admin(func(ctx context.Context, conn *sql.Conn) error {
				schemas, err := column(ctx, conn, "SELECT schema_name FROM information_schema.schemata")
				if slices.Contains(schemas, schema) {
					t.Errorf("the schema %s is still there", schema)
				}
				return err
			})
			require.NoError(t, err)
		})
	}
}

func (d *DB) qualified(table string) string {
	if d.Schema == "" {
		return table
	}
	return d.Schema + "." + table
}

func count(t *testing.T, db *DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+db.qualified("item")).Scan(&n))
	return n
}
