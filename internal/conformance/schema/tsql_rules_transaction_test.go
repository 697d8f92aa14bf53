package schema_test

import (
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// The rules about transactions, their levels and the options of a session.

// readsWhatIsCommittedNow: in a caller's transaction the level is the caller's. A snapshot may be from before a join ended, and
// SERIALIZABLE locks the gaps beside what is read, where others insert. READCOMMITTED would read versions if
// READ_COMMITTED_SNAPSHOT is on.
func readsWhatIsCommittedNow(s *tsql) (found []finding) {
	for _, p := range s.procedures {
		if !s.takesPart(p) {
			continue
		}
		written := writes(p)
		for _, from := range nodes[*ast.FromClause](p) {
			for _, ref := range sources(from) {
				table, ok := ref.(*ast.NamedTableReference)
				if !ok || !isOurs(table) || isView(table) || slices.ContainsFunc(written, func(w write) bool { return w.table == table }) {
					continue
				}
				f := finding{p: p, node: table}
				levels := []string{"READCOMMITTEDLOCK", "REPEATABLEREAD", "NOLOCK", "HOLDLOCK"}
				switch {
				case !slices.ContainsFunc(levels, func(hint string) bool { return has(table, hint) }):
					f.broken = table.SchemaObject.BaseIdentifier.Value + " is read at the caller's level"
				case has(table, "UPDLOCK") && has(table, "READCOMMITTEDLOCK") && !has(table, "READPAST"):
					f.broken = "the server ignores READCOMMITTEDLOCK beside UPDLOCK"
				}
				found = append(found, f)
			}
		}
	}
	return found
}

// passesOverAtALevelThatMay: READPAST is refused at SERIALIZABLE, with error 650, and under READ_COMMITTED_SNAPSHOT where nothing
// says that it reads by locks. READCOMMITTEDLOCK is enough in a transaction of our own. Beside UPDLOCK it is ignored, and a
// caller's transaction may have any level, so there the hint is REPEATABLEREAD.
func passesOverAtALevelThatMay(s *tsql) (found []finding) {
	for _, p := range s.procedures {
		callers := s.runsInACallers(p)
		ours := outsideATransaction[*ast.NamedTableReference](p)
		for _, table := range nodes[*ast.NamedTableReference](p) {
			if !has(table, "READPAST") {
				continue
			}
			f, level := finding{p: p, node: table}, "READCOMMITTEDLOCK"
			if callers && !ours[table] && has(table, "UPDLOCK") {
				level = "REPEATABLEREAD"
			}
			if !has(table, level) {
				f.broken = "READPAST without " + level
			}
			found = append(found, f)
		}
	}
	return found
}

// runsInACallers says whether a procedure may run in a caller's transaction, itself or because another calls it there.
func (s *tsql) runsInACallers(p *procedure) bool {
	switch s.whose(p) {
	case "own":
		return false
	case "any":
		return true
	}
	return slices.ContainsFunc(s.procedures, func(other *procedure) bool {
		ours := outsideATransaction[*ast.ExecutableProcedureReference](other)
		return slices.ContainsFunc(other.steps, func(one step) bool {
			call, ok := one.node.(*ast.ExecutableProcedureReference)
			return ok && one.call == p.name() && !ours[call]
		}) && s.runsInACallers(other)
	})
}

// outsideATransaction returns the nodes that a procedure comes to only where it was called outside a transaction.
func outsideATransaction[T comparable](p *procedure) map[T]bool {
	found := map[T]bool{}
	for _, condition := range nodes[*ast.IfStatement](p) {
		if isOutsideATransaction(condition.Predicate) {
			for _, node := range nodes[T](condition.ThenStatement) {
				found[node] = true
			}
		}
	}
	return found
}

// takesPart says whether a procedure that writes, or one that it calls, may run in a caller's transaction.
func (s *tsql) takesPart(p *procedure) bool {
	callers := slices.DeleteFunc(slices.Clone(s.procedures), func(other *procedure) bool { return !slices.Contains(other.calls(), p.name()) })
	switch s.whose(p) {
	case "own":
		return false
	case "any":
		if slices.ContainsFunc(s.inlined(p), func(one step) bool { return strings.ContainsAny(one.how, "UX+") }) {
			return true
		}
	}
	return slices.ContainsFunc(callers, s.takesPart)
}

// opensWithItsOptions: a count of rows would be taken for an answer; and what an error does to a transaction is not left to the
// session's XACT_ABORT.
func opensWithItsOptions(p *procedure) []finding {
	f := finding{node: p.AlterProcedureStatement}
	first := p.StatementList.Statements
	if block, ok := first[0].(*ast.BeginEndBlockStatement); ok {
		first = block.StatementList.Statements
	}
	if set, ok := first[0].(*ast.PredicateSetStatement); !ok || set.Options != string(ast.SetOptionsNoCount) || !set.IsOn {
		f.broken = "it does not begin with SET NOCOUNT ON; "
	}
	if p.operation() && !slices.ContainsFunc(nodes[*ast.PredicateSetStatement](p), func(set *ast.PredicateSetStatement) bool { return set.Options == string(ast.SetOptionsXactAbort) }) {
		f.broken += "it does not set XACT_ABORT"
	}
	return []finding{f}
}

// leavesTheCallersTransaction: an error in a caller's transaction is the caller's to decide on.
func leavesTheCallersTransaction(s *tsql) []finding {
	return each(func(p *procedure) []finding {
		if s.whose(p) == "its caller's" && !s.runsInACallers(p) {
			return nil
		}
		return leavesXactAbort(p)
	})(s)
}

func leavesXactAbort(p *procedure) (found []finding) {
	guarded := outsideATransaction[*ast.PredicateSetStatement](p)
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

// isOutsideATransaction: @@TRANCOUNT = 0, or the variable that has kept it, perhaps AND more.
func isOutsideATransaction(condition ast.BooleanExpression) bool {
	if both, ok := condition.(*ast.BooleanBinaryExpression); ok && both.BinaryExpressionType == "And" {
		return isOutsideATransaction(both.FirstExpression) || isOutsideATransaction(both.SecondExpression)
	}
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

// commitsWhatItBegins: a T-SQL caller with IMPLICIT_TRANSACTIONS ON would leave what is to be committed here uncommitted. It is
// about the procedures whose transaction is their own, whatever the caller has. For one that takes part in the caller's, the
// first statement of an implicit transaction is where that begins.
func commitsWhatItBegins(p *procedure) []finding {
	begins, levels := unconditional[*ast.BeginTransactionStatement](p), unconditional[*ast.SetTransactionIsolationLevelStatement](p)
	if len(begins)+len(levels) == 0 {
		return nil
	}
	f := finding{node: p.AlterProcedureStatement, broken: "no SET IMPLICIT_TRANSACTIONS OFF"}
	for _, set := range nodes[*ast.PredicateSetStatement](p) {
		if set.Options == string(ast.SetOptionsImplicitTransactions) && !set.IsOn {
			f.broken = ""
		}
	}
	return []finding{f}
}

// bracketsWhatItWrites: what takes more than one statement is done whole or not at all, in a transaction of its own or, in a
// caller's, from a savepoint; and whoever calls is told why.
func bracketsWhatItWrites(s *tsql) (found []finding) {
	for _, p := range s.procedures {
		changes := 0
		for _, one := range p.steps {
			if one.call != "" || one.how == "+" || strings.HasPrefix(one.how, "X") {
				changes++
			}
		}
		begins := nodes[*ast.BeginTransactionStatement](p)
		if s.whose(p) == "its caller's" || changes < 2 && len(begins) == 0 {
			continue
		}
		found = append(found, finding{p: p, node: p.AlterProcedureStatement, broken: p.bracket()})
	}
	return found
}

// bracket says what is wrong with the bracket of a procedure.
func (p *procedure) bracket() string {
	begin, commit, catch := "BEGIN TRANSACTION", "COMMIT TRANSACTION", "IF XACT_STATE() <> 0 ROLLBACK TRANSACTION; THROW"
	if saves := nodes[*ast.SaveTransactionStatement](p); len(saves) == 1 {
		name := saves[0].Name.Value
		begin = "IF @Outer = 0 BEGIN TRANSACTION; ELSE SAVE TRANSACTION " + name
		commit = "IF @Outer = 0 COMMIT TRANSACTION"
		catch = "IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION; IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION " + name + "; THROW"
	}
	for _, try := range nodes[*ast.TryCatchStatement](p) {
		first, last := try.TryStatements.Statements[0], try.TryStatements.Statements[len(try.TryStatements.Statements)-1]
		if p.saysPlainly(first) == begin && p.saysPlainly(last) == commit {
			if got := p.saysPlainly(try.CatchStatements.Statements...); got != catch {
				return "CATCH is " + got
			}
			return ""
		}
	}
	return "no TRY from " + begin + " to " + commit
}

// saysPlainly is the text of statements, but for the last semicolon.
func (p *procedure) saysPlainly(statements ...ast.Statement) string {
	var texts []string
	for _, s := range statements {
		texts = append(texts, strings.TrimRight(p.says(s), "; "))
	}
	return strings.Join(texts, "; ")
}

// namesEachSavepointOnce: the outer of two nested savepoints of one name cannot be gone back to, and what is longer than 32 is
// cut, but for a variable, which is refused.
func namesEachSavepointOnce(s *tsql) (found []finding) {
	seen := map[string]bool{}
	for _, p := range s.procedures {
		for _, save := range nodes[*ast.SaveTransactionStatement](p) {
			f := finding{p: p, node: save}
			switch name := save.Name.Value; {
			case save.Name.Identifier == nil:
				f.broken = "no name"
			case len(name) > 32:
				f.broken = name + " is too long"
			case seen[name]:
				f.broken = "there are two of " + name
			}
			seen[save.Name.Value] = true
			found = append(found, f)
		}
	}
	return found
}

// returnsContentsAfterItCommits: a client that reads slowly, or has stopped, would hold the locks for as long. What the buffers of
// a connection hold may be sent before, which needs no reader.
func returnsContentsAfterItCommits(s *tsql) (found []finding) {
	for _, p := range s.procedures {
		if s.whose(p) != "own" {
			continue
		}
		little := map[any]bool{}
		for _, condition := range nodes[*ast.IfStatement](p) {
			if is, ok := condition.Predicate.(*ast.BooleanComparisonExpression); ok && is.ComparisonType == "LessThanOrEqualTo" {
				variable, _ := is.FirstExpression.(*ast.VariableReference)
				most, _ := is.SecondExpression.(*ast.IntegerLiteral)
				for _, call := range nodes[*ast.ExecutableProcedureReference](condition.ThenStatement) {
					little[call] = variable != nil && variable.Name == "@Bytes" && most != nil && most.Value == "65536"
				}
			}
		}
		open := false
		walk(p.StatementList, func(node any) bool {
			switch node := node.(type) {
			case *ast.BeginTransactionStatement:
				open = true
			case *ast.CommitTransactionStatement:
				open = false
			case *ast.SelectStatement, *ast.ExecutableProcedureReference:
				if !s.returnsContents(node) {
					break
				}
				f := finding{p: p, node: node}
				if open && !little[node] {
					f.broken = "payloads are sent while the transaction is open"
				}
				found = append(found, f)
			}
			return true
		})
	}
	return found
}

func (s *tsql) returnsContents(node any) bool {
	call, ok := node.(*ast.ExecutableProcedureReference)
	if !ok {
		return slices.ContainsFunc(nodes[*ast.ColumnReferenceExpression](node), func(column *ast.ColumnReferenceExpression) bool {
			name := column.MultiPartIdentifier
			return name != nil && name.Identifiers[len(name.Identifiers)-1].Value == "Payload"
		})
	}
	at := slices.IndexFunc(s.procedures, func(p *procedure) bool {
		return p.name() == call.ProcedureReference.ProcedureReference.Name.BaseIdentifier.Value
	})
	if at < 0 {
		return false
	}
	called := s.procedures[at].StatementList
	return slices.ContainsFunc(nodes[*ast.SelectStatement](called), func(q *ast.SelectStatement) bool { return s.returnsContents(q) }) ||
		slices.ContainsFunc(nodes[*ast.ExecutableProcedureReference](called), func(c *ast.ExecutableProcedureReference) bool { return s.returnsContents(c) })
}
