package schema_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The queries of docs/sqlserver.md can be parsed, ask only what migrations create, and run where there is a SQL Server.
func TestTheQueriesForPeople(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sqlserver.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Looking\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var code strings.Builder
	for line := range strings.Lines(section) {
		if line, ok := strings.CutPrefix(line, "    "); ok {
			code.WriteString(line)
		}
	}
	queries := code.String()
	parsed(t, queries)

	var created strings.Builder
	for _, migration := range sqlFiles(t, outbox.SQLServer{}, "migrations/*") {
		created.WriteString(migration)
	}
	objects := regexp.MustCompile(`\[dbo\]\.\[\w+\]`).FindAllString(queries, -1)
	require.Len(t, objects, 7)
	for _, object := range objects {
		require.Regexp(t, `CREATE (TABLE|VIEW) `+regexp.QuoteMeta(object)+`\s`, created.String())
	}

	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name == testdb.SQLServer {
			_, err := f.DB.ExecContext(f.Context(), strings.ReplaceAll(queries, "[dbo]", "["+f.DB.Schema+"]"))
			f.NoError(err)
		}
	})
}
