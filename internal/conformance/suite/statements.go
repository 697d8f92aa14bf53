package suite

import (
	"embed"
	"path"
	"strings"
)

// Statements of tests that are the same on every database. Names in braces are those of Fixture.SQL.
//
//go:embed statements
var statementFiles embed.FS

// statement is the text of a file, without its last semicolon.
func statement(name string) string {
	text, err := statementFiles.ReadFile(path.Join("statements", name+".sql"))
	if err != nil {
		panic(err) // a test names a file that there is not
	}
	return strings.TrimSuffix(strings.TrimSpace(string(text)), ";")
}
