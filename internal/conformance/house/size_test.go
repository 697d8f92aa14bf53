package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

const (
	mostLines         = 400 // in a file
	mostLinesFunction = 60
)

// A story of internal/demo is told in one go.
func TestFilesAndFunctionsAreShort(t *testing.T) {
	files := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || path == filepath.Join(root, "internal", "demo")):
			return filepath.SkipDir
		case entry.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		for _, long := range tooLong(t, path, nil) {
			t.Error(long)
		}
		return nil
	}))
	require.Greater(t, files, 100)
}

// tooLong names what is too long in a file, or in its text.
func tooLong(t *testing.T, path string, text any) (names []string) {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	if positions.Position(file.FileEnd).Line > mostLines {
		names = append(names, path)
	}
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if ok && 1+positions.Position(f.End()).Line-positions.Position(f.Pos()).Line > mostLinesFunction {
			names = append(names, path+": "+f.Name.Name)
		}
	}
	return names
}

func TestWhatIsTooLongIsNamed(t *testing.T) {
	function := func(lines int) string { return "func f() {" + strings.Repeat("\n", lines-1) + "}\n" }
	require.Empty(t, tooLong(t, "short.go", "package x\n\n"+function(mostLinesFunction)))
	require.Equal(t, []string{"long.go: f"}, tooLong(t, "long.go", "package x\n\n"+function(mostLinesFunction+1)))
	require.Empty(t, tooLong(t, "short.go", "package x"+strings.Repeat("\n", mostLines)))
	require.Equal(t, []string{"long.go"}, tooLong(t, "long.go", "package x"+strings.Repeat("\n", mostLines+1)))
}
