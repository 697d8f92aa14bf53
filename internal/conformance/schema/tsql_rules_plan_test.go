package schema_test

import (
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// The rules about what a statement reads and locks, and by which way it gets there.

// asksNoCatalogue: ownership chaining does not extend to metadata; what a member of the role asks the catalogue is asked as the
// caller, who is told that there is nothing.
func asksNoCatalogue(p *procedure) (found []finding) {
	metadata := []string{"OBJECT_ID", "OBJECT_NAME", "OBJECT_SCHEMA_NAME", "OBJECTPROPERTY", "OBJECTPROPERTYEX", "OBJECT_DEFINITION",
		"COL_LENGTH", "COL_NAME", "COLUMNPROPERTY", "INDEXPROPERTY", "INDEX_COL", "TYPE_ID", "TYPE_NAME", "SCHEMA_ID", "SCHEMA_NAME",
		"IDENT_CURRENT", "HAS_PERMS_BY_NAME"}
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

// picksBeforeItWrites: a pick in the statement that writes need not be done first, nor once; only the inner SELECT is pinned
// by its hints.
func picksBeforeItWrites(p *procedure) (found []finding) {
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

// joinsFromTheKeys: a join that begins with a table looks at all of it. The order, and loops, are the optimizer's otherwise.
func joinsFromTheKeys(p *procedure) (found []finding) {
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
		if takesKeys(statement) && (len(outerSources(statement)) == 0 || !isGiven(outerSources(statement)[0])) {
			f.broken += "it does not begin with the keys"
		}
		found = append(found, f)
	}
	return found
}

// readWhole are the tables of which a procedure wants every row.
var readWhole = map[string]string{
	"Outbox_Log_Purge":   "Outbox_Log_Group", // the one that is furthest behind
	"Outbox_Event_Purge": "Outbox_Log_Group",
}

// seeks: a scan is cheaper than a seek on a small table, and waits for and locks what has nothing to do with it.
func seeks(p *procedure) (found []finding) {
	for _, from := range nodes[*ast.FromClause](p) {
		for _, ref := range sources(from) {
			table, ok := ref.(*ast.NamedTableReference)
			if !ok || !isOurs(table) || isView(table) || readWhole[p.name()] == table.SchemaObject.BaseIdentifier.Value {
				continue
			}
			f := finding{node: table}
			if !has(table, "FORCESEEK") {
				f.broken = "no FORCESEEK of " + table.SchemaObject.BaseIdentifier.Value
			}
			found = append(found, f)
		}
	}
	return found
}

// locksByKey: without ROWLOCK a page may be locked, and without FORCESEEK all rows on the way. Beside the target itself SQL
// Server takes ROWLOCK, and refuses FORCESEEK and all else that is about the plan.
func locksByKey(p *procedure) (found []finding) {
	locking := []*ast.NamedTableReference{}
	for _, w := range writes(p) {
		locking = append(locking, w.table)
		if w.from == nil {
			found = append(found, finding{node: w.node, broken: "no FROM, where alone FORCESEEK may stand"})
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

// findsWithoutLocks: UPDLOCK stays on each row that is looked at and not taken; thousands of them become one lock of the table,
// which READPAST does not pass over.
func findsWithoutLocks(p *procedure) (found []finding) {
	for _, query := range nodes[*ast.QuerySpecification](p) {
		refs := sources(query.FromClause)
		locks := slices.ContainsFunc(refs, func(ref any) bool {
			table, ok := ref.(*ast.NamedTableReference)
			return ok && isOurs(table) && has(table, "UPDLOCK")
		})
		if locks && !isGiven(refs[0]) {
			found = append(found, finding{node: query, broken: filtersByTables(query.FromClause, query.WhereClause)})
		}
	}
	for _, w := range writes(p) {
		f := finding{node: w.node}
		if refs := sources(w.from); len(refs) == 0 || !isGiven(refs[0]) {
			f.broken = filtersByTables(w.from, w.where)
		}
		found = append(found, f)
	}
	return found
}

// filtersByTables says whether rows are dropped by what another table has.
func filtersByTables(from *ast.FromClause, where *ast.WhereClause) string {
	if len(nodes[*ast.ExistsPredicate](where)) > 0 {
		return "locked, and filtered by EXISTS"
	}
	for _, in := range nodes[*ast.BooleanInExpression](where) {
		if in.Subquery != nil {
			return "locked, and filtered by IN (SELECT …)"
		}
	}
	for _, join := range nodes[*ast.QualifiedJoin](from) {
		if join.QualifiedJoinType == "LeftOuter" {
			return "locked, and filtered by an outer join"
		}
	}
	return ""
}

// answersBySelect: a table with a trigger refuses OUTPUT to the caller.
func answersBySelect(p *procedure) (found []finding) {
	add := func(node any, output *ast.OutputClause) {
		f := finding{node: node}
		if output != nil {
			f.broken = "OUTPUT without INTO"
		}
		found = append(found, f)
	}
	for _, s := range nodes[*ast.InsertStatement](p) {
		add(s, s.InsertSpecification.OutputClause)
	}
	for _, s := range nodes[*ast.UpdateStatement](p) {
		add(s, s.UpdateSpecification.OutputClause)
	}
	for _, s := range nodes[*ast.DeleteStatement](p) {
		add(s, s.DeleteSpecification.OutputClause)
	}
	return found
}

// outputsWhatItKeeps: what a row has become is read from the row, which is ours until the end of the transaction. Not every
// server waits for the row before it computes OUTPUT.
func outputsWhatItKeeps(p *procedure) (found []finding) {
	for _, update := range nodes[*ast.UpdateSpecification](p) {
		if update.OutputIntoClause == nil {
			continue
		}
		var set []string
		for _, clause := range nodes[*ast.AssignmentSetClause](update.SetClauses) {
			if clause.Column != nil {
				set = append(set, columnOf(clause.Column))
			}
		}
		f := finding{node: update}
		for _, column := range nodes[*ast.ColumnReferenceExpression](update.OutputIntoClause.SelectColumns) {
			if name := columnOf(column); slices.Contains(set, name) {
				f.broken = "OUTPUT of " + name + ", which it sets"
			}
		}
		found = append(found, f)
	}
	return found
}

// numbersInOrder: an IDENTITY follows the rows of a SELECT only if that says in which order.
func numbersInOrder(p *procedure) (found []finding) {
	numbered := []string{"Outbox"} // of the tables only Seq says what came first
	for _, table := range nodes[*ast.DeclareTableVariableStatement](p) {
		if len(nodes[*ast.IdentityOptions](table)) > 0 {
			numbered = append(numbered, table.Body.VariableName.Value)
		}
	}
	for _, insert := range nodes[*ast.InsertStatement](p) {
		name := ""
		switch target := insert.InsertSpecification.Target.(type) {
		case *ast.NamedTableReference:
			name = target.SchemaObject.BaseIdentifier.Value
		case *ast.VariableTableReference:
			name = target.Variable.Name
		}
		source, ok := insert.InsertSpecification.InsertSource.(*ast.SelectInsertSource)
		if !ok || !slices.Contains(numbered, name) {
			continue
		}
		f := finding{node: insert}
		if query, ok := source.Select.(*ast.QuerySpecification); !ok || query.OrderByClause == nil {
			f.broken = "no ORDER BY for the numbers of " + name
		}
		found = append(found, f)
	}
	return found
}

// statesAreOfFixedWidth: what is settled is rewritten in place. A row that grows splits its page.
func statesAreOfFixedWidth(s *tsql) (found []finding) {
	fixed := []string{"BigInt", "Int", "SmallInt", "TinyInt", "Bit", "DateTime2", "UniqueIdentifier", "Binary", "Char"}
	for _, table := range s.tables {
		isState := slices.ContainsFunc(table.Definition.ColumnDefinitions, func(c *ast.ColumnDefinition) bool { return c.ColumnIdentifier.Value == "NextAttemptAt" })
		for _, column := range table.Definition.ColumnDefinitions {
			of, ok := column.DataType.(*ast.SqlDataTypeReference)
			if !isState || !ok {
				continue
			}
			f := finding{node: column}
			if !slices.Contains(fixed, of.SqlDataTypeOption) {
				f.broken = column.ColumnIdentifier.Value + " is " + of.SqlDataTypeOption
			}
			found = append(found, f)
		}
	}
	return found
}
