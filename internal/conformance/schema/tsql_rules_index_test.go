package schema_test

import (
	"slices"

	"github.com/sqlc-dev/teesql/ast"
)

// The rules about what an index has, and about large columns.

// An index is what a seek can go by: its columns, and those that its filter speaks of. The clustered one is the table itself.
type index struct {
	table             string
	key               []string
	included, filter  []string
	clustered, unique bool
}

// indexesOf returns the keys and indexes of tables.
func indexesOf(script *ast.Script) (found []index) {
	for _, table := range nodes[*ast.CreateTableStatement](script) {
		for _, key := range nodes[*ast.UniqueConstraintDefinition](table) {
			found = append(found, index{table: table.SchemaObjectName.BaseIdentifier.Value, key: keyOf(key.Columns), unique: true,
				clustered: key.Clustered || key.IndexType != nil && key.IndexType.IndexTypeKind == "Clustered"})
		}
	}
	for _, i := range nodes[*ast.CreateIndexStatement](script) {
		one := index{table: i.OnName.BaseIdentifier.Value, key: keyOf(i.Columns), unique: i.Unique, clustered: i.Clustered != nil && *i.Clustered}
		for _, column := range i.IncludeColumns {
			one.included = append(one.included, columnOf(column))
		}
		for _, column := range nodes[*ast.ColumnReferenceExpression](i.FilterPredicate) {
			one.filter = append(one.filter, columnOf(column))
		}
		found = append(found, one)
	}
	return found
}

func keyOf(columns []*ast.ColumnWithSortOrder) (names []string) {
	for _, column := range columns {
		names = append(names, columnOf(column.Column))
	}
	return names
}

// within says whether all of some columns are among others.
func within(some []string, others ...[]string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(slices.Concat(others...), one) })
}

// seekable says whether a seek by the compared columns can go by an index.
func (i index) seekable(table string, compared []string) bool {
	return i.table == table && slices.Contains(compared, i.key[0]) && within(i.filter, compared)
}

// canSeek: a statement that is forced to seek and cannot is refused when it is first run (8622). It can where a condition that
// always holds compares the first column of an index, and those that the index is filtered by, with what is known before:
// FORCE ORDER has a subquery done after the table.
func canSeek(s *tsql) (found []finding) {
	return each(func(p *procedure) (found []finding) {
		for _, one := range scopes(p) {
			for _, table := range one.tables() {
				if !has(table, "FORCESEEK") {
					continue
				}
				name, compared := table.SchemaObject.BaseIdentifier.Value, one.compared(table)
				f := finding{node: table}
				if !slices.ContainsFunc(s.indexes, func(i index) bool { return i.seekable(name, compared) }) {
					f.broken = "no index of " + name + " for a seek"
				}
				found = append(found, f)
			}
		}
		return found
	})(s)
}

// readsWhatTheIndexHas: a reader locks the entry of the index and then the row; a delete locks the row first, and its entries
// after that. A row that is found by another index than the table itself is read in the next statement, or passed over.
func readsWhatTheIndexHas(s *tsql) (found []finding) {
	return each(func(p *procedure) (found []finding) {
		written := writes(p)
		for _, one := range scopes(p) {
			for _, table := range one.tables() {
				name, compared := table.SchemaObject.BaseIdentifier.Value, one.compared(table)
				clustered := slices.IndexFunc(s.indexes, func(i index) bool { return i.table == name && i.clustered })
				if clustered < 0 || isView(table) || has(table, "READPAST") || has(table, "NOLOCK") || p.adds(name, table) ||
					slices.ContainsFunc(written, func(w write) bool { return w.table == table }) {
					continue
				}
				f := finding{node: table}
				used := columnsOf(one.node, table, len(one.tables()) == 1)
				if !slices.ContainsFunc(s.indexes, func(i index) bool {
					return i.seekable(name, compared) && (i.clustered || within(used, i.key, i.included, i.filter, s.indexes[clustered].key))
				}) {
					f.broken = "no index of " + name + " has all that is read"
				}
				found = append(found, f)
			}
		}
		return found
	})(s)
}

// adds says whether a procedure inserts into a table before a node, so that it has the rows.
func (p *procedure) adds(table string, before any) bool {
	at := slices.IndexFunc(p.steps, func(one step) bool { return one.node == before })
	return at > 0 && slices.ContainsFunc(p.steps[:at], func(one step) bool { return one.table == table && one.how == "+" })
}

// writtenInPart are the procedures that write to all rows of a table under a part of its key.
var writtenInPart = map[string][]string{
	// A position is a dead letter of a group under few topics. What is forgotten was discarded in batches before.
	"Outbox_Log_Dead":  {"Outbox_Log_Dead_Requeue", "Outbox_Log_Dead_Discard", "Outbox_Log_Forget"},
	"Outbox_Log_Group": {"Outbox_Log_Forget"}, // the topics of one group
}

// writesByAWholeKey: what begins with a thousand keys and writes to all rows under each may lock any number of them, and
// thousands of locks of one statement become one of the table.
func writesByAWholeKey(s *tsql) (found []finding) {
	return each(func(p *procedure) (found []finding) {
		written := writes(p)
		for _, one := range scopes(p) {
			for _, table := range one.tables() {
				if !slices.ContainsFunc(written, func(w write) bool { return w.table == table }) {
					continue
				}
				name, compared := table.SchemaObject.BaseIdentifier.Value, one.compared(table)
				f := finding{node: table}
				if slices.Contains(writtenInPart[name], p.name()) {
					continue
				}
				if !slices.ContainsFunc(s.indexes, func(i index) bool { return i.table == name && i.unique && within(i.key, compared) }) {
					f.broken = "any number of rows of " + name
				}
				found = append(found, f)
			}
		}
		return found
	})(s)
}

// readsLargeColumnsAlone: a statement that returns a large column keeps the locks of its rows to its end. It may then not wait
// for another table, whose rows somebody has who wants these.
func readsLargeColumnsAlone(s *tsql) (found []finding) {
	large := map[string][]string{}
	for _, table := range s.tables {
		for _, column := range table.Definition.ColumnDefinitions {
			of, ok := column.DataType.(*ast.SqlDataTypeReference)
			if ok && len(nodes[*ast.MaxLiteral](of)) > 0 {
				name := table.SchemaObjectName.BaseIdentifier.Value
				large[name] = append(large[name], column.ColumnIdentifier.Value)
			}
		}
	}
	return each(func(p *procedure) (found []finding) {
		for _, statement := range statements(p) {
			tables, _ := readBy(statement)
			for _, one := range scopes(statement) {
				query, ok := one.node.(*ast.QuerySpecification)
				if !ok {
					continue
				}
				for _, table := range one.tables() {
					name := table.SchemaObject.BaseIdentifier.Value
					if !slices.ContainsFunc(columnsOf(query.SelectElements, table, len(one.tables()) == 1), func(c string) bool { return slices.Contains(large[name], c) }) {
						continue
					}
					f := finding{node: table}
					if name == "OutboxJoin" && len(sources(one.from)) > 1 {
						f.broken = "a large column of several joins, which others lock for long"
					}
					if slices.ContainsFunc(tables, func(other *ast.NamedTableReference) bool { return other != table && !has(other, "NOLOCK") }) {
						f.broken = "a large column of " + name + ", and another table"
					}
					found = append(found, f)
				}
			}
		}
		return found
	})(s)
}

// columnsOf returns the columns of a table that a tree speaks of. alone says that columns without a table's name are of this one.
func columnsOf(in any, table *ast.NamedTableReference, alone bool) (columns []string) {
	for _, column := range nodes[*ast.ColumnReferenceExpression](in) {
		if name := columnIn(column, table, alone); name != "" {
			columns = append(columns, name)
		}
	}
	return columns
}

// columnIn returns the name of a column if it is one of a table, else "".
func columnIn(expression any, table *ast.NamedTableReference, alone bool) string {
	column, ok := expression.(*ast.ColumnReferenceExpression)
	if !ok || column.MultiPartIdentifier == nil {
		return ""
	}
	parts := column.MultiPartIdentifier.Identifiers
	if len(parts) == 1 && alone || len(parts) == 2 && table.Alias != nil && parts[0].Value == table.Alias.Value {
		return parts[len(parts)-1].Value
	}
	return ""
}
