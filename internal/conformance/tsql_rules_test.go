package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/stretchr/testify/assert"
)

// Bad plans and lock escalation show up only on a SQL Server under load. These rules over the parsed text keep out the
// statements that lead to them.

// A finding is a place that a rule is about; broken says how it breaks the rule, if it does.
type finding struct {
	node   any
	broken string
}

var tsqlRules = map[string]func(*ast.AlterProcedureStatement) []finding{
	// Ownership chaining does not extend to metadata: what a member of the role asks the catalogue is asked as the caller.
	"asks no catalogue": asksNoCatalogue,
	// A pick in the statement that writes need not be done first, nor once: only the inner SELECT is pinned by its hints.
	"picks before it writes": picksBeforeItWrites,
	// A scan is cheaper than a seek on a small table, and waits for and locks what has nothing to do with it.
	"joins from the keys": joinsFromTheKeys,
	// Without ROWLOCK a page may be locked, and without FORCESEEK all rows on the way.
	"locks by key": locksByKey,
	// UPDLOCK stays on each row that is looked at and not taken; thousands of them become one lock of the table.
	"finds without locks": findsWithoutLocks,
	// An error in a caller's transaction is the caller's to decide on.
	"leaves a caller's transaction alone": leavesTheCallersTransaction,
	// A T-SQL caller with IMPLICIT_TRANSACTIONS ON would leave what is to be committed here uncommitted.
	"commits what it begins": commitsWhatItBegins,
}

func TestTheTSQLKeepsItsRules(t *testing.T) {
	procedures := parsedProcedures(t)
	assert.Greater(t, len(procedures), 35)
	for rule, check := range tsqlRules {
		t.Run(rule, func(t *testing.T) {
			looked := 0
			for file, procedure := range procedures {
				for _, f := range check(procedure) {
					looked++
					assert.Empty(t, f.broken, "%s:%d: %s", file, line(f.node), rule)
				}
			}
			assert.NotZero(t, looked, "the rule has found nothing that it is about")
		})
	}
}

// The outer of two nested savepoints of one name cannot be gone back to, and what is longer than 32 is cut.
func TestTheTSQLNamesEachSavepointOnce(t *testing.T) {
	seen := map[string]string{}
	for file, procedure := range parsedProcedures(t) {
		for _, save := range nodes[*ast.SaveTransactionStatement](procedure) {
			name := save.Name.Value
			assert.LessOrEqual(t, len(name), 32, "%s: %s", file, name)
			assert.Empty(t, seen[name], "%s has the savepoint %s too", file, name)
			seen[name] = file
		}
	}
	assert.Greater(t, len(seen), 10)
}

func asksNoCatalogue(p *ast.AlterProcedureStatement) (found []finding) {
	metadata := []string{"OBJECT_ID", "OBJECT_NAME", "OBJECT_SCHEMA_NAME", "OBJECTPROPERTY", "OBJECTPROPERTYEX", "OBJECT_DEFINITION",
		"COL_LENGTH", "COL_NAME", "COLUMNPROPERTY", "INDEXPROPERTY", "INDEX_COL", "TYPE_ID", "TYPE_NAME", "SCHEMA_ID", "SCHEMA_NAME", "IDENT_CURRENT"}
	for _, call := range nodes[*ast.FunctionCall](p) {
		f := finding{node: call}
		if slices.Contains(metadata, strings.ToUpper(call.FunctionName.Value)) {
			f.broken = call.FunctionName.Value
		}
		found = append(found, f)
	}
	for _, table := range nodes[*ast.NamedTableReference](p) {
		f := finding{node: table}
		if schema := table.SchemaObject.SchemaIdentifier; schema != nil && slices.Contains([]string{"SYS", "INFORMATION_SCHEMA"}, strings.ToUpper(schema.Value)) {
			f.broken = schema.Value + "." + table.SchemaObject.BaseIdentifier.Value
		}
		found = append(found, f)
	}
	return found
}

func picksBeforeItWrites(p *ast.AlterProcedureStatement) (found []finding) {
	for _, w := range writes(p) {
		f := finding{node: w.node}
		if w.top != nil {
			f.broken = "TOP in an UPDATE or DELETE"
		}
		for _, in := range nodes[*ast.BooleanInExpression](w.where) {
			if slices.ContainsFunc(fromOf(in.Subquery), isOurs) {
				f.broken = "IN (SELECT … FROM one of our tables)"
			}
		}
		found = append(found, f)
	}
	return found
}

func joinsFromTheKeys(p *ast.AlterProcedureStatement) (found []finding) {
	for _, statement := range statements(p) {
		tables, given := readBy(statement)
		if len(tables) == 0 || len(tables)+given < 2 {
			continue
		}
		f := finding{node: statement}
		for _, wanted := range []string{"LOOPJOIN", "FORCEORDER", "MAXDOP"} {
			if !slices.Contains(optimizerHints(statement), wanted) {
				f.broken += "no " + wanted + "; "
			}
		}
		for _, table := range tables {
			if !isView(table) && !has(table, "FORCESEEK") {
				f.broken += "no FORCESEEK of " + table.SchemaObject.BaseIdentifier.Value + "; "
			}
		}
		if takesKeys(statement) && (len(outerSources(statement)) == 0 || !isGiven(outerSources(statement)[0])) {
			f.broken += "it does not begin with the keys"
		}
		found = append(found, f)
	}
	return found
}

// locksByKey: beside the target itself SQL Server takes ROWLOCK, and refuses FORCESEEK and all else that is about the plan.
func locksByKey(p *ast.AlterProcedureStatement) (found []finding) {
	locking := []*ast.NamedTableReference{}
	for _, w := range writes(p) {
		locking = append(locking, w.table)
		if w.from == nil {
			found = append(found, finding{w.node, "no FROM, where alone FORCESEEK may stand"})
		}
	}
	for _, table := range nodes[*ast.NamedTableReference](p) {
		if isOurs(table) && !slices.Contains(locking, table) && (has(table, "UPDLOCK") || has(table, "XLOCK") || has(table, "HOLDLOCK") || has(table, "SERIALIZABLE")) {
			locking = append(locking, table)
		}
	}
	for _, table := range locking {
		f := finding{node: table}
		for _, wanted := range []string{"ROWLOCK", "FORCESEEK"} {
			if !has(table, wanted) {
				f.broken += "no " + wanted + "; "
			}
		}
		found = append(found, f)
	}
	return found
}

func findsWithoutLocks(p *ast.AlterProcedureStatement) (found []finding) {
	for _, query := range nodes[*ast.QuerySpecification](p) {
		refs := sources(query.FromClause)
		if len(refs) == 0 || !isOurs(refs[0]) {
			continue
		}
		if table, ok := refs[0].(*ast.NamedTableReference); !ok || !has(table, "UPDLOCK") {
			continue
		}
		found = append(found, finding{query, filtersByTables(query.WhereClause)})
	}
	for _, w := range writes(p) {
		f := finding{node: w.node}
		if refs := sources(w.from); len(refs) == 0 || !isGiven(refs[0]) {
			if len(nodes[*ast.ExistsPredicate](w.where)) > 0 {
				f.broken = "it looks into another table for each row that it locks"
			}
		}
		found = append(found, f)
	}
	return found
}

// filtersByTables says whether rows are dropped by what another table has.
func filtersByTables(where *ast.WhereClause) string {
	if len(nodes[*ast.ExistsPredicate](where)) > 0 {
		return "UPDLOCK, filtered by EXISTS"
	}
	for _, in := range nodes[*ast.BooleanInExpression](where) {
		if in.Subquery != nil {
			return "UPDLOCK, filtered by IN (SELECT …)"
		}
	}
	return ""
}

func leavesTheCallersTransaction(p *ast.AlterProcedureStatement) (found []finding) {
	guarded := map[*ast.PredicateSetStatement]bool{}
	for _, condition := range nodes[*ast.IfStatement](p) {
		if isOutsideATransaction(condition.Predicate) {
			for _, set := range nodes[*ast.PredicateSetStatement](condition.ThenStatement) {
				guarded[set] = true
			}
		}
	}
	for _, set := range nodes[*ast.PredicateSetStatement](p) {
		if set.Options != string(ast.SetOptionsXactAbort) || !set.IsOn {
			continue
		}
		f := finding{node: set}
		if !guarded[set] {
			f.broken = "XACT_ABORT ON in a caller's transaction"
		}
		found = append(found, f)
	}
	return found
}

// isOutsideATransaction: @@TRANCOUNT = 0, or the variable that has kept it.
func isOutsideATransaction(condition ast.BooleanExpression) bool {
	comparison, ok := condition.(*ast.BooleanComparisonExpression)
	if !ok || comparison.ComparisonType != "Equals" {
		return false
	}
	zero, ok := comparison.SecondExpression.(*ast.IntegerLiteral)
	if !ok || zero.Value != "0" {
		return false
	}
	switch first := comparison.FirstExpression.(type) {
	case *ast.GlobalVariableExpression:
		return strings.EqualFold(first.Name, "@@TRANCOUNT")
	case *ast.VariableReference:
		return first.Name == "@Outer"
	}
	return false
}

// commitsWhatItBegins is about the procedures whose transaction is their own, whatever the caller has. For one that takes
// part in the caller's, the first statement of an implicit transaction is where that begins.
func commitsWhatItBegins(p *ast.AlterProcedureStatement) (found []finding) {
	conditional := map[any]bool{}
	for _, condition := range nodes[*ast.IfStatement](p) {
		for _, begin := range nodes[*ast.BeginTransactionStatement](condition) {
			conditional[begin] = true
		}
		for _, level := range nodes[*ast.SetTransactionIsolationLevelStatement](condition) {
			conditional[level] = true
		}
	}
	var own any
	for _, begin := range nodes[*ast.BeginTransactionStatement](p) {
		if !conditional[begin] {
			own = begin
		}
	}
	for _, level := range nodes[*ast.SetTransactionIsolationLevelStatement](p) {
		if !conditional[level] {
			own = level
		}
	}
	if own == nil {
		return nil
	}
	f := finding{own, "no SET IMPLICIT_TRANSACTIONS OFF"}
	for _, set := range nodes[*ast.PredicateSetStatement](p) {
		if set.Options == string(ast.SetOptionsImplicitTransactions) && !set.IsOn {
			f.broken = ""
		}
	}
	return []finding{f}
}

// Rules that find nothing would hold as well: each is shown what breaks it.
func TestTheRulesAreBrokenByWhatTheyForbid(t *testing.T) {
	const body = "ALTER PROCEDURE [dbo].[P] AS BEGIN %s END"
	for text, rule := range map[string]string{
		"IF OBJECT_ID(N'[dbo].[T]') IS NULL RETURN;": "asks no catalogue",
		"SELECT 1 FROM sys.objects;":                 "asks no catalogue",
		"DELETE FROM [dbo].[T] WHERE Seq IN (SELECT TOP (5) Seq FROM [dbo].[T] WITH (UPDLOCK));":    "picks before it writes",
		"DELETE TOP (5) FROM [dbo].[T] WHERE a = 1;":                                                "picks before it writes",
		"UPDATE t SET a = 1 FROM [dbo].[T] AS t INNER JOIN @K AS k ON k.Seq = t.Seq;":               "joins from the keys",
		"DELETE FROM [dbo].[T] WHERE Seq IN (SELECT Seq FROM @K);":                                  "joins from the keys",
		"SELECT 1 FROM @K AS k INNER JOIN [dbo].[T] AS t WITH (FORCESEEK) ON t.Seq = k.Seq;":        "joins from the keys",
		"UPDATE [dbo].[T] SET a = 1 WHERE Seq = 1;":                                                 "locks by key",
		"UPDATE [dbo].[T] WITH (ROWLOCK, FORCESEEK) SET a = 1 WHERE Seq = 1;":                       "locks by key",
		"SELECT a FROM [dbo].[T] WITH (UPDLOCK, ROWLOCK) WHERE Seq = 1;":                            "locks by key",
		"SELECT Seq FROM [dbo].[T] AS t WITH (UPDLOCK) WHERE NOT EXISTS (SELECT 1 FROM [dbo].[K]);": "finds without locks",
		"DELETE FROM [dbo].[T] WHERE a = 1 AND NOT EXISTS (SELECT 1 FROM [dbo].[K]);":               "finds without locks",
		"SET XACT_ABORT ON;":                                        "leaves a caller's transaction alone",
		"BEGIN TRANSACTION; COMMIT TRANSACTION;":                    "commits what it begins",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT 1;": "commits what it begins",
	} {
		broken := ""
		for _, procedure := range nodes[*ast.AlterProcedureStatement](parsed(t, fmt.Sprintf(body, text))) {
			for _, f := range tsqlRules[rule](procedure) {
				broken += f.broken
			}
		}
		assert.NotEmpty(t, broken, "%s: %s", rule, text)
	}
}
