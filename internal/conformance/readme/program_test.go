package readme

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The README's program runs on PostgreSQL too, once its line of the dialect is followed.
func TestTrap_TheProgramRunsOnPostgres(t *testing.T) {
	t.Parallel()
	backends := testdb.Backends(t)
	at := slices.IndexFunc(backends, func(b testdb.Backend) bool { return b.Name == testdb.Postgres })
	if at < 0 {
		return // scripts/with-databases says which databases did not run
	}
	db := backends[at].Open(t)
	dsn, err := url.Parse(db.DSN)
	require.NoError(t, err)
	values := dsn.Query()
	values.Set("search_path", db.Schema)
	dsn.RawQuery = values.Encode()

	d := parse(read(t, "README.md"))
	program := d.program()
	for _, change := range []struct{ from, to string }{
		{`outbox\.SQLite\{\} // or Postgres\{\} with sql\.Open\("pgx", …\).*`, "outbox.Postgres{}"},
		{`outbox\.OpenSQLite\(.*\)`, `sql.Open("pgx", ` + strconv.Quote(dsn.String()) + `)`},
		{`Dialect: dialect`, `Dialect: dialect, Schema: "` + db.Schema + `"`},
		{`modernc\.org/sqlite`, "github.com/jackc/pgx/v5/stdlib"},
	} {
		pattern := regexp.MustCompile(change.from)
		require.Regexp(t, pattern, program)
		program = pattern.ReplaceAllLiteralString(program, change.to)
	}
	require.NotContains(t, strings.ToLower(program), "sqlite")
	require.Equal(t, d.output(), goCommand(t, scratchModule(t, program), "run", "."))
}
