package examples_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxLines is how long a program to copy may be.
const maxLines = 150

// Each example can be copied: one short file, which imports nothing internal and says how to run it.
func TestEachExampleCanBeCopied(t *testing.T) {
	names, err := examples()
	require.NoError(t, err)
	require.NotEmpty(t, names)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			files, err := os.ReadDir(name)
			require.NoError(t, err)
			for _, file := range files {
				require.True(t, file.Name() == "main.go" || strings.HasSuffix(file.Name(), "_test.go"), "%s should not be there", file.Name())
			}

			path := filepath.Join(name, "main.go")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.LessOrEqual(t, strings.Count(string(text), "\n"), maxLines, "lines of %s", path)

			file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly|parser.ParseComments)
			require.NoError(t, err)
			require.Equal(t, "main", file.Name.Name)
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				require.NoError(t, err)
				require.NotContains(t, "/"+imported+"/", "/internal/")
			}

			require.Contains(t, file.Doc.Text(), "go run ./examples/"+name)
			require.Contains(t, string(readme), "]("+name+"/main.go)", "README.md should have a line for %s", name)
		})
	}
}

// Each example is run by a test.
func TestEachExampleIsRun(t *testing.T) {
	names, err := examples()
	require.NoError(t, err)
	var run []string
	for name := range stories {
		run = append(run, name)
	}
	run = append(run, "forward-to-rabbitmq", "forward-to-kafka", "sqlserver") // by tests of their own
	require.ElementsMatch(t, names, run)
}
