package schema_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/sqlc-dev/teesql/parser"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The schema files themselves, without a database where none is needed.

var dialects = []outbox.Dialect{outbox.SQLServer{}, outbox.Postgres{}, outbox.SQLite{}}

func sqlFiles(t *testing.T, d outbox.Dialect, pattern string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, fs.WalkDir(d.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if match, err := path.Match(pattern, name); err != nil || !match {
			return err
		}
		text, err := fs.ReadFile(d.Files(), name)
		files[name] = string(text)
		return err
	}))
	return files
}

func TestEveryDialectHasTheSameOperations(t *testing.T) {
	listing := func(d outbox.Dialect) (names []string) {
		for name := range sqlFiles(t, d, "operations/*") {
			if name != "operations/outbox_work.sql" { // on SQLite, settling and then claiming, statement by statement
				names = append(names, name)
			}
		}
		return names
	}
	want := listing(outbox.Postgres{})
	require.GreaterOrEqual(t, len(want), 9)
	for _, d := range dialects {
		require.ElementsMatch(t, want, listing(d), d.Name())
	}
	for d, want := range map[outbox.Dialect][]string{
		outbox.SQLServer{}: {"ack", "abandon", "fail", "give_back", "worker_number", "join_advance", "join_count", "join_wake", "log_begin", "log_next", "log_advance",
			"stream_route", "stream_claim", "stream_free", "attempt_purge", "take", "taken"},
		outbox.Postgres{}: {"ack", "abandon", "fail", "give_back", "worker_number", "join_advance", "join_count", "join_wake",
			"stream_route", "stream_claim", "stream_lock", "stream_unfold", "stream_free"},
		outbox.SQLite{}: nil,
	} {
		var names []string
		for name := range sqlFiles(t, d, "procedures/*") {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(name, "procedures/outbox_"), ".sql"))
		}
		require.ElementsMatch(t, want, names, d.Name())
	}
}

func TestEveryDialectHasTheSameMigrations(t *testing.T) {
	number := regexp.MustCompile(`^migrations/(\d{4})_[a-z_]+\.sql$`)
	for _, d := range dialects {
		files := sqlFiles(t, d, "migrations/*")
		require.Len(t, files, len(sqlFiles(t, dialects[0], "migrations/*")), d.Name())
		for name := range files {
			require.Contains(t, sqlFiles(t, dialects[0], "migrations/*"), name)
			require.Regexp(t, number, name)
		}
		for i := range len(files) { // without a gap
			found := false
			for name := range files {
				found = found || strings.HasPrefix(name, fmt.Sprintf("migrations/%04d_", i+1))
			}
			require.True(t, found, "%s: %d", d.Name(), i+1)
		}
	}
}

func TestEveryFileOpensWithWhy(t *testing.T) {
	for _, d := range dialects {
		files := sqlFiles(t, d, "*/*.sql")
		require.NotEmpty(t, files)
		for name, text := range files {
			first, _, _ := strings.Cut(text, "\n")
			require.True(t, strings.HasPrefix(first, "-- ") && len(first) > 15, "%s/%s begins with %q", d.Name(), name, first)
			require.True(t, strings.HasSuffix(text, "\n"), "%s/%s does not end with a new line", d.Name(), name)
			require.NotContains(t, text, "\t", "%s/%s", d.Name(), name)
			require.NotContains(t, text, "\r", "%s/%s", d.Name(), name)
		}
	}
}

// What makes T-SQL less portable than it need be, or hides an index from a filter.
func TestTheTSQLIsPortable(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"MERGE":               regexp.MustCompile(`(?i)\bMERGE\b`),
		"CREATE OR ALTER":     regexp.MustCompile(`(?i)\bCREATE\s+OR\s+ALTER\b`),
		"WAITFOR":             regexp.MustCompile(`(?i)\bWAITFOR\b`),
		"OUTPUT deleted":      regexp.MustCompile(`(?i)\bOUTPUT\s+deleted\.`),
		"an inline INDEX":     regexp.MustCompile(`(?im)^\s+INDEX\s`),
		"a column's own FK":   regexp.MustCompile(`(?im)^\s+\w+\s+[A-Z0-9()]+\s.*\bNULL\b.*\bREFERENCES\b`),
		"an updatable CTE":    regexp.MustCompile(`(?is)\bWITH\s+\w+\s+AS\s*\([^;]*\)\s*(UPDATE|DELETE)\b`),
		"a local time":        regexp.MustCompile(`(?i)\b(GETDATE|SYSDATETIME|CURRENT_TIMESTAMP|GETUTCDATE)\b`),
		"a filter's variable": regexp.MustCompile(`(?i)CREATE\s+INDEX[^;]*WHERE[^;]*@`),
	}
	comment := regexp.MustCompile(`--[^\n]*`)
	for name, text := range sqlFiles(t, outbox.SQLServer{}, "*/*.sql") {
		code := comment.ReplaceAllString(text, "")
		for what, pattern := range forbidden {
			require.False(t, pattern.MatchString(code), "%s has %s", name, what)
		}
		if strings.HasPrefix(name, "operations/") && !strings.Contains(name, "enqueue") {
			require.True(t, strings.Contains(code, "XACT_ABORT ON"), "%s: a batch that is queried sets XACT_ABORT ON or catches", name)
		}
	}
}

func TestTheTSQLParses(t *testing.T) {
	for name, text := range sqlFiles(t, outbox.SQLServer{}, "*/*.sql") {
		t.Run(name, func(t *testing.T) { parse(t, text) })
	}
}

// What the examples, the benchmark and the tests run on SQL Server besides the library.
func TestTheOtherTSQLParses(t *testing.T) {
	const root = "../../.."
	paths := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".sql") {
			return err
		}
		short := strings.TrimPrefix(filepath.ToSlash(name), root+"/")
		if strings.Contains(short, "sqlserver") && !strings.HasPrefix(short, "schema/") {
			paths[short] = name
		}
		return nil
	}))
	for _, known := range []string{"examples/bench/sql/sqlserver/claim.sql", "internal/demo/orders/sql/create_sqlserver.sql"} {
		require.Contains(t, paths, known)
	}
	for short, name := range paths {
		t.Run(short, func(t *testing.T) {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			parse(t, filledIn(t, string(text)))
		})
	}
}

// filledIn has names for the {tables} of the demonstrations, and for the templates of the benchmark.
func filledIn(t *testing.T, text string) string {
	t.Helper()
	if !strings.Contains(text, "{{") {
		return regexp.MustCompile(`\{(\w+)\}`).ReplaceAllString(text, "[$1]")
	}
	row := map[string]int{"ID": 1, "UUID": 2, "Topic": 3, "Payload": 4, "Key": 5}
	data := map[string]any{"Rows": []map[string]int{row, row}}
	for _, name := range regexp.MustCompile(`\{\{\.(\w+)\}\}`).FindAllStringSubmatch(text, -1) {
		data[name[1]] = "[" + name[1] + "]"
	}
	parsed, err := template.New("").Option("missingkey=error").Parse(text)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, parsed.Execute(&out, data))
	return out.String()
}

// A name that is put in unquoted somewhere makes the script unparsable, or makes it say something else.
func TestLong_TheTSQLParsesUnderAnyName(t *testing.T) {
	plain, err := outbox.MigrationSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}})
	require.NoError(t, err)
	want := shape(t, plain)
	for _, name := range []string{
		`x]; DROP TABLE y; -- ]]`, `x'"; -- '' $1 ?1 @p1 %s`, `/* [a].[b] */ Grüße 🙂`, `Outbox`,
	} {
		t.Run(name, func(t *testing.T) {
			script, err := outbox.MigrationSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}, Schema: name, Table: name})
			require.NoError(t, err)
			require.True(t, reflect.DeepEqual(want, shape(t, script)), "it has another shape than under the default name")
			script, err = outbox.RoleSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}, Schema: name, Table: name})
			require.NoError(t, err)
			parse(t, script)
		})
	}
}

// parse parses a script, batch by batch.
func parse(t testing.TB, script string) (trees []*ast.Script) {
	t.Helper()
	for _, batch := range suite.Batches("GO", script) {
		trees = append(trees, parsed(t, batch))
	}
	require.NotEmpty(t, trees)
	return trees
}

// shape is that of a script: the syntax trees of its batches without the texts in them.
func shape(t testing.TB, script string) (shape []any) {
	t.Helper()
	for _, batch := range parse(t, script) {
		text, err := parser.MarshalScript(batch)
		require.NoError(t, err)
		var tree any
		require.NoError(t, json.Unmarshal(text, &tree))
		shape = append(shape, withoutTexts(tree))
	}
	return shape
}

func withoutTexts(node any) any {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			switch value.(type) {
			case map[string]any, []any:
				node[key] = withoutTexts(value)
			default: // texts, and where they stand
				if key != "$type" {
					delete(node, key)
				}
			}
		}
	case []any:
		for i, value := range node {
			node[i] = withoutTexts(value)
		}
	}
	return node
}

// The parser is no rubber stamp, and the shape tells what a name has broken out of.
func TestTheParserRefusesNonsense(t *testing.T) {
	for _, nonsense := range []string{"UPDATE SET x", "EXEC (N'x)", "SELECT 1 FROM t WHERE", "UPDATE [x]y].[T] SET a = 1", "INSERT INTO t (a VALUES (1)"} {
		_, err := parser.Parse(t.Context(), strings.NewReader(nonsense))
		require.Error(t, err, nonsense)
	}
	require.Equal(t, shape(t, "DELETE FROM [a].[b] WHERE c = 1"), shape(t, "DELETE FROM [x]]y].[T] WHERE c = 1"))
	require.NotEqual(t, shape(t, "DELETE FROM [a].[b] WHERE c = 1"), shape(t, "DELETE FROM [x]; DROP TABLE [b] -- WHERE c = 1"))
}

// The script works in sqlcmd, whose defaults are others than the drivers'.
func TestThePrintedScriptSetsWhatFilteredIndexesNeed(t *testing.T) {
	script, err := outbox.MigrationSQL(outbox.MigrateConfig{Dialect: outbox.SQLServer{}})
	require.NoError(t, err)
	lines := strings.Split(script, "\n")
	require.Equal(t, []string{"SET ANSI_NULLS ON;", "SET QUOTED_IDENTIFIER ON;"}, lines[:2])
	for _, batch := range suite.Batches("GO", script) {
		code := strings.TrimSpace(regexp.MustCompile(`(?m)^--[^\n]*\n`).ReplaceAllString(batch, ""))
		if strings.Contains(code, "ALTER PROCEDURE") && !strings.Contains(code, "EXEC (N'CREATE PROCEDURE") {
			require.True(t, strings.HasPrefix(code, "ALTER PROCEDURE"), "a procedure must be alone in its batch:\n%s", batch)
		}
	}
}

// SQLite runs an operation as statements; what they answer has one shape.
func TestAnOperationOfSQLiteAnswersInOneShape(t *testing.T) {
	for _, backend := range testdb.Backends(t) {
		if backend.Name != testdb.SQLite {
			continue
		}
		f := suite.New(t, backend.Open(t), "")
		f.WithInbox = true
		f.Migrate()
		for name, text := range sqlFiles(t, outbox.SQLite{}, "operations/*") {
			shapes := map[int]bool{}
			call := outbox.SQLite{}.Call(text)
			f.NotEmpty(call, name)
			tx, err := f.DB.BeginTx(t.Context(), nil)
			f.NoError(err)
			for _, s := range call {
				if s.Gate {
					continue // its answer is not the operation's
				}
				statement := s.Text
				args := []any{`{"topics":[],"groups":[],"ids":[],"owner":"","status":2,"limit":1,"give_back":1,"lease_ms":1,"older_than_ms":1,
					"id":"j","fail_fast":false,"messages":[],"by_report":false,"failed":false,"claimed":false,"recheck_ms":1,"group":"g","topic":"t","position":1,"after":1,"take":true,"entries":[],"message":"m","attempts":1,"bytes":1,"from":0,"tried":1,"version":0,"shape":0,"requeued":false,"positions":[1],"scan":1,"counted":1,"sample":1,"cut":1,"newest":false}`, []byte{}}
				if strings.Contains(name, "enqueue") {
					args[0] = "[]" // the messages
				}
				switch name { // those with typed parameters
				case "operations/outbox_enqueue_one.sql":
					args = []any{"id", "uuid", "topic", 1, []byte{}, nil, nil, nil, nil, nil}
				case "operations/outbox_event_append_one.sql":
					args = []any{"stream", 0, "id", "uuid", "topic", 1, []byte{}, "{}", nil, nil, nil}
				}
				highest := 0
				for n := range args {
					if strings.Contains(statement, fmt.Sprint("?", n+1)) {
						highest = n + 1
					}
				}
				args = args[:highest]
				rows, err := tx.QueryContext(t.Context(), statement, args...)
				f.NoError(err, "%s\n%s", name, statement)
				columns, err := rows.Columns()
				f.NoError(err)
				f.NoError(rows.Close())
				f.NoError(rows.Err())
				if len(columns) > 0 {
					shapes[len(columns)] = true
				}
			}
			f.NoError(tx.Rollback()) // without its gates it may do what the operation never does
			f.LessOrEqual(len(shapes), 1, name)
		}
	}
}
