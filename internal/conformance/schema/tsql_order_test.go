package schema_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What each procedure locks, and in which order, is read off its text and held against docs/locks.md, where people read it.

// A step is what a procedure does to rows of a table, by a sign of docs/locks.md, or a call of another procedure.
type step struct {
	table, how string
	call       string
	node       any
}

// waits says whether the step may wait for a lock and then keeps one. What was locked by an earlier step of the procedure is
// not waited for again.
func (s step) waits(before []step) bool {
	locked := slices.ContainsFunc(before, func(b step) bool { return b.table == s.table && strings.ContainsAny(b.how, "UX") })
	return s.how == "U" || s.how == "X" && !locked
}

// readSteps reads a procedure from top to bottom, whatever its conditions say.
func (p *procedure) readSteps() (steps []step) {
	targets := map[*ast.NamedTableReference]bool{}
	for _, w := range writes(p.AlterProcedureStatement) {
		targets[w.table] = true
	}
	inserted := map[*ast.NamedTableReference]bool{}
	for _, insert := range nodes[*ast.InsertStatement](p.AlterProcedureStatement) {
		if table, ok := insert.InsertSpecification.Target.(*ast.NamedTableReference); ok {
			inserted[table] = true
		}
	}
	committed := 0
	walk(p.StatementList, func(node any) bool {
		switch node := node.(type) {
		case *ast.BeginTransactionStatement:
			if len(steps) > 0 {
				steps = append(steps, bar)
			}
		case *ast.CommitTransactionStatement:
			committed = len(steps)
		case *ast.ExecutableProcedureReference:
			steps = append(steps, step{call: node.ProcedureReference.ProcedureReference.Name.BaseIdentifier.Value, node: node})
		case *ast.NamedTableReference:
			if isOurs(node) {
				steps = append(steps, step{table: node.SchemaObject.BaseIdentifier.Value, how: sign(node, inserted[node], targets[node]), node: node})
			}
		}
		return true
	})
	if 0 < committed && committed < len(steps) {
		steps = slices.Insert(steps, committed, bar)
	}
	return steps
}

// bar is where a transaction begins, or ends.
var bar = step{how: "|"}

// sign says by a sign of docs/locks.md what is done to a table.
func sign(table *ast.NamedTableReference, inserted, written bool) string {
	sign := "S"
	switch {
	case inserted:
		return "+"
	case written:
		sign = "X"
	case has(table, "UPDLOCK"):
		sign = "U"
	case has(table, "NOLOCK"):
		return "D"
	case has(table, "NOWAIT"):
		return "S!"
	}
	if has(table, "READPAST") {
		sign += "?"
	}
	return sign
}

// shortName is how docs/locks.md calls a table or procedure.
func shortName(name string) string {
	for _, prefix := range []string{"Outbox_", "OutboxJoin", "Outbox"} {
		if short := strings.TrimPrefix(name, prefix); short != name && short != "" {
			return short
		}
	}
	return strings.TrimPrefix(name, "Outbox") + map[string]string{"OutboxJoin": "Join", "Outbox": "Outbox"}[name]
}

// line writes steps as docs/locks.md does: what is done to one table without another between is one step.
func inOneLine(steps []step) string {
	var b strings.Builder
	before := bar
	for _, s := range steps {
		switch {
		case s.how == "|":
			b.WriteString(" |")
		case s.call == "" && s.table == before.table && s.how == before.how:
			continue
		case s.call == "" && s.table == before.table:
			b.WriteString(", " + s.how)
		default:
			if b.Len() > 0 && before.how != "|" {
				b.WriteString(" →")
			}
			if s.call != "" {
				b.WriteString(" (" + shortName(s.call) + ")")
			} else {
				b.WriteString(" " + shortName(s.table) + " " + s.how)
			}
		}
		before = s
	}
	return strings.TrimSpace(b.String())
}

// whose says whose transaction a procedure runs in, as docs/locks.md does.
func (s *tsql) whose(p *procedure) string {
	switch {
	case len(unconditional[*ast.SetTransactionIsolationLevelStatement](p))+len(unconditional[*ast.BeginTransactionStatement](p)) > 0:
		return "own"
	case !p.operation() && slices.ContainsFunc(s.procedures, func(other *procedure) bool { return slices.Contains(other.calls(), p.name()) }):
		return "its caller's"
	default:
		return "any"
	}
}

// calls are the procedures that one calls.
func (p *procedure) calls() (names []string) {
	for _, s := range p.steps {
		if s.call != "" {
			names = append(names, s.call)
		}
	}
	return names
}

// inlined are the steps of a procedure and of those that it calls.
func (s *tsql) inlined(p *procedure) (steps []step) {
	for _, one := range p.steps {
		at := slices.IndexFunc(s.procedures, func(called *procedure) bool { return called.name() == one.call })
		if at < 0 {
			steps = append(steps, one)
			continue
		}
		for _, inner := range s.inlined(s.procedures[at]) {
			if inner != bar {
				inner.node = one.node // the line is one of the caller's
				steps = append(steps, inner)
			}
		}
	}
	return steps
}

// locksInOneOrder: whoever waits has locked nothing that comes later in the order of docs/locks.md, and what is not in it is
// not waited for with a lock.
func locksInOneOrder(s *tsql) (found []finding) {
	rank := func(table string) int { return slices.Index(s.order, shortName(table)) }
	for _, p := range s.procedures {
		steps := s.inlined(p)
		begun := 0
		for i, one := range steps {
			if one == bar {
				begun = i
			}
			f := finding{p: p, node: one.node}
			held := func(b step) bool { return b.table != "" && strings.ContainsAny(b.how, "UX+") }
			mine := slices.ContainsFunc(steps[:i], func(b step) bool { return held(b) && b.table == one.table })
			switch {
			case one.waits(steps[:i]) && rank(one.table) < 0:
				f.broken = "it waits for " + one.table + ", which the order does not name"
			case (one.waits(steps[:i]) || one.how == "S" && !mine) && rank(one.table) >= 0:
				for _, before := range steps[begun:i] {
					if held(before) && rank(before.table) > rank(one.table) {
						f.broken = "it waits for " + one.table + " and has " + before.table
					}
				}
			default:
				continue
			}
			found = append(found, f)
		}
	}
	return found
}

var orderSentence = regexp.MustCompile(`locked in this order: ([^.]+)\.`)

// lockOrder is the order of docs/locks.md in which rows are waited for.
func lockOrder(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "locks.md"))
	require.NoError(t, err)
	sentence := orderSentence.FindStringSubmatch(string(text))
	require.NotNil(t, sentence, "docs/locks.md says in which order rows are locked")
	return strings.Split(sentence[1], ", ")
}

var tableRow = regexp.MustCompile(`(?m)^\| ([A-Z]\w+) \| ([^|]+) \| (.+) \|$`)

// The table in docs/locks.md is what the procedures say.
func TestTheTableOfLocksIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "locks.md"))
	require.NoError(t, err)
	said := map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(strings.ReplaceAll(string(text), `\|`, "¦"), -1) {
		said[row[1]] = row[0]
	}
	s := parsedTSQL(t)
	for _, p := range s.procedures {
		want := strings.ReplaceAll(fmt.Sprintf("| %s | %s | %s |", shortName(p.name()), s.whose(p), strings.ReplaceAll(inOneLine(p.steps), "|", "¦")), "  ", " ")
		assert.Equal(t, want, said[shortName(p.name())], p.file)
		delete(said, shortName(p.name()))
	}
	delete(said, "Procedure")
	assert.Empty(t, said, "docs/locks.md speaks of procedures that are not there")
}
