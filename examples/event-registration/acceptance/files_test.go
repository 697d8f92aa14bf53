package acceptance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each database has the same statements, and each of them says why it is there.
func TestEachDatabaseHasTheSameStatements(t *testing.T) {
	for _, folder := range []string{"../registration/sql", "../catalog/sql"} {
		var first []string
		for _, name := range []string{"sqlite", "postgres", "sqlserver"} {
			var files []string
			for _, kind := range []string{"migrations", "statements"} {
				found, err := filepath.Glob(filepath.Join(folder, name, kind, "*.sql"))
				require.NoError(t, err)
				for _, path := range found {
					text, err := os.ReadFile(path)
					require.NoError(t, err)
					lines := strings.SplitN(string(text), "\n", 3)
					require.True(t, strings.HasPrefix(lines[0], "-- ") && strings.HasPrefix(lines[1], "-- "), path)
					files = append(files, kind+"/"+filepath.Base(path))
				}
			}
			require.NotEmpty(t, files)
			if first == nil {
				first = files
			}
			require.Equal(t, first, files)
		}
	}
}
