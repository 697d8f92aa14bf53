package schema_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/stretchr/testify/require"
)

// The T-SQL of examples/event-registration runs on no SQL Server in CI either: the parser reads it, and these rules hold for it.
func TestTheTSQLOfTheRegistrationExampleIsParsedAndKeepsItsRules(t *testing.T) {
	paths, err := filepath.Glob("../../../examples/event-registration/*/sql/sqlserver/*/*.sql")
	require.NoError(t, err)
	require.Greater(t, len(paths), 20)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Empty(t, brokenByExample(filepath.Base(path), parsed(t, string(text))), path)
	}
}

func TestTheRulesOfTheExampleAreBrokenByWhatTheyForbid(t *testing.T) {
	for name, text := range map[string]string{
		"a lock":                  "SELECT a FROM registration_event WITH (ROWLOCK) WHERE event_id = @p1;",
		"event_lock.sql":          "SELECT a FROM registration_event WHERE event_id = @p1;",
		"a batch":                 "SET LOCK_TIMEOUT -1; SELECT 1;",
		"a write without a WHERE": "UPDATE registration SET status = 'x';",
		"a merge":                 "MERGE t AS t USING s ON t.a = s.a WHEN MATCHED THEN DELETE;",
		"an updatable CTE":        "WITH c AS (SELECT a FROM t) DELETE FROM c WHERE a = 1;",
		"OUTPUT":                  "UPDATE t SET a = 1 OUTPUT deleted.a WHERE b = 1;",
		"a wait":                  "WAITFOR DELAY '00:00:01';",
	} {
		require.NotEmpty(t, brokenByExample(name, parsed(t, text)), "%s: %s", name, text)
	}
}

// brokenByExample says which rule a file breaks.
func brokenByExample(file string, script *ast.Script) string {
	switch {
	case len(nodes[*ast.MergeStatement](script)) > 0, len(nodes[*ast.WaitForStatement](script)) > 0, len(nodes[*ast.CommonTableExpression](script)) > 0:
		return "MERGE, WAITFOR or a common table expression"
	case len(nodes[*ast.OutputClause](script)) > 0:
		return "OUTPUT"
	}
	for _, table := range nodes[*ast.NamedTableReference](script) {
		locks := has(table, "UPDLOCK")
		switch {
		case file == "event_lock.sql" && !locks:
			return "the event is not locked"
		case has(table, "ROWLOCK") != (locks && !has(table, "HOLDLOCK") || has(table, "READPAST")):
			return "ROWLOCK belongs to UPDLOCK of a row, and to READPAST"
		}
	}
	for _, update := range nodes[*ast.UpdateStatement](script) {
		if update.UpdateSpecification.WhereClause == nil {
			return "an UPDATE of all rows"
		}
	}
	for _, remove := range nodes[*ast.DeleteStatement](script) {
		if remove.DeleteSpecification.WhereClause == nil {
			return "a DELETE of all rows"
		}
	}
	// A driver may wait for ever for a batch whose error has not ended it.
	batch := script.Batches[0].Statements
	protected := slices.ContainsFunc(batch, func(one ast.Statement) bool { _, found := one.(*ast.TryCatchStatement); return found })
	if option, ok := batch[0].(*ast.PredicateSetStatement); ok && option.IsOn && strings.EqualFold(option.Options, "XactAbort") {
		protected = true
	}
	if len(batch) > 1 && !protected {
		return "several statements without XACT_ABORT and without TRY"
	}
	return ""
}
