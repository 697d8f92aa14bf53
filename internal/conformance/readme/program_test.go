package readme

import (
	"net/url"
	"os"
	"path/filepath"
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

// Until the first release, a program outside of the repository finds the modules as the README says.
func TestTrap_TheModulesAreFoundBeforeARelease(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/shop\n\ngo 1.25.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), []byte(read(t, own+"/go.sum")), 0o600))
	replaced := submatches(regexp.MustCompile(`(?m)^ {4}go mod edit -replace (\S+)$`), readme)
	require.NotEmpty(t, replaced)
	program := "package main\n\n"
	for _, r := range replaced {
		module, path, _ := strings.Cut(r, "=")
		program += "import _ " + strconv.Quote(module) + "\n"
		goCommand(t, dir, "mod", "edit", "-replace", module+"="+strings.Replace(path, "../watermill-outbox", filepath.ToSlash(repository), 1))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program+"\nfunc main() {}\n"), 0o600))
	goCommand(t, dir, "mod", "tidy")
	goCommand(t, dir, "vet", ".")
}

// Each page that has the reader go get a module of ours leads to what has to be done before a release.
func TestEachGoGetLeadsToWhatABeginnerHasToDoBefore(t *testing.T) {
	t.Parallel()
	eachDocument(t, func(t *testing.T, path string, d document) {
		if slices.ContainsFunc(d.modules(), func(m string) bool { return strings.HasPrefix(m, "github.com/incursa/") }) {
			target := "../README.md#before-the-first-release"
			if path == "README.md" {
				target = "#before-the-first-release"
			}
			require.Contains(t, d.links(), target)
		}
	})
}
