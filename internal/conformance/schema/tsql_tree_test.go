package schema_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/sqlc-dev/teesql/parser"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// What the rules over the T-SQL see of it: procedures, the statements in them, and what those read and write.

// A tsql is the T-SQL of a schema, parsed.
type tsql struct {
	procedures []*procedure
	tables     []*ast.CreateTableStatement
	indexes    []index
	order      []string // of docs/locks.md
}

// A procedure is one as it is parsed, with the file that it is in. Its nodes tell their lines there.
type procedure struct {
	*ast.AlterProcedureStatement
	file  string
	text  []uint16 // what the offsets of its nodes count in
	steps []step
}

func (p *procedure) name() string { return p.ProcedureReference.Name.BaseIdentifier.Value }

// says is the text of a node, in one line.
func (p *procedure) says(node any) string {
	at, length := fragment(node).FieldByName("StartOffset").Int(), fragment(node).FieldByName("FragmentLength").Int()
	return strings.Join(strings.Fields(string(utf16.Decode(p.text[at:at+length]))), " ")
}

// operation says whether applications call it.
func (p *procedure) operation() bool { return strings.HasPrefix(p.file, "operations/") }

// parsedTSQL parses the files of the schema.
func parsedTSQL(t *testing.T) *tsql {
	t.Helper()
	s := &tsql{order: lockOrder(t)}
	for _, pattern := range []string{"migrations/*", "operations/*", "procedures/*"} {
		for name, text := range sqlFiles(t, outbox.SQLServer{}, pattern) {
			s.add(t, name, text)
		}
	}
	return s
}

// add parses a file, batch by batch.
func (s *tsql) add(t *testing.T, file, text string) {
	t.Helper()
	at := 0 // the lines before the batch, so that a node tells its line in the file
	for _, batch := range strings.Split(text, "\nGO\n") {
		padded := strings.Repeat("\n", at) + batch
		script := parsed(t, padded)
		for _, p := range nodes[*ast.AlterProcedureStatement](script) {
			one := &procedure{AlterProcedureStatement: p, file: file, text: utf16.Encode([]rune(padded))}
			one.steps = one.readSteps()
			s.procedures = append(s.procedures, one)
		}
		s.tables = append(s.tables, nodes[*ast.CreateTableStatement](script)...)
		s.indexes = append(s.indexes, indexesOf(script)...)
		at += strings.Count(batch, "\n") + 2
	}
}

// columnOf is the name of a column, without that of its table.
func columnOf(column *ast.ColumnReferenceExpression) string {
	if column.MultiPartIdentifier == nil {
		return "" // as in COUNT(*)
	}
	parts := column.MultiPartIdentifier.Identifiers
	return parts[len(parts)-1].Value
}

func parsed(t testing.TB, batch string) *ast.Script {
	t.Helper()
	script, err := parser.Parse(t.Context(), strings.NewReader(batch))
	require.NoError(t, err, batch)
	return script
}

// walk visits what is in a syntax tree, and goes on below each node that visit says so of.
func walk(node any, visit func(node any) (deeper bool)) {
	var in func(v reflect.Value)
	in = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Interface:
			in(v.Elem())
		case reflect.Slice:
			for i := range v.Len() {
				in(v.Index(i))
			}
		case reflect.Pointer:
			if !v.IsNil() && visit(v.Interface()) {
				in(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					in(v.Field(i))
				}
			}
		}
	}
	in(reflect.ValueOf(node))
}

// nodes returns the nodes of one type in a tree.
func nodes[T any](node any) (found []T) {
	walk(node, func(node any) bool {
		if wanted, ok := node.(T); ok {
			found = append(found, wanted)
		}
		return true
	})
	return found
}

// isOurs says whether a reference is to a table of the outbox or to a view of it.
func isOurs(ref any) bool {
	table, named := ref.(*ast.NamedTableReference)
	return named && table.SchemaObject.SchemaIdentifier != nil && table.SchemaObject.SchemaIdentifier.Value == "dbo"
}

func isView(table *ast.NamedTableReference) bool {
	name := table.SchemaObject.BaseIdentifier.Value
	return strings.HasSuffix(name, "_View") || strings.HasSuffix(name, "_Kept")
}

// isGiven says whether a reference is to what the caller has given or the procedure has found: a table variable, or JSON.
func isGiven(ref any) bool {
	switch ref.(type) {
	case *ast.VariableTableReference, *ast.OpenJsonTableReference:
		return true
	}
	return false
}

// sources returns what a FROM takes its rows from, in the order in which it stands there.
func sources(from *ast.FromClause) (refs []any) {
	if from == nil {
		return nil
	}
	walk(from.TableReferences, func(node any) bool {
		switch node.(type) {
		case *ast.NamedTableReference, *ast.VariableTableReference, *ast.OpenJsonTableReference:
			refs = append(refs, node)
			return false
		case *ast.QualifiedJoin, *ast.UnqualifiedJoin:
			return true
		}
		return false
	})
	return refs
}

// hints returns the hints of a table, in capitals.
func hints(table *ast.NamedTableReference) (kinds []string) {
	for _, hint := range table.TableHints {
		kind := reflect.Indirect(reflect.ValueOf(hint)).FieldByName("HintKind").String()
		kinds = append(kinds, strings.ToUpper(kind))
	}
	return kinds
}

func has(table *ast.NamedTableReference, hint string) bool {
	return slices.Contains(hints(table), hint)
}

// A write is an UPDATE or a DELETE of one of our tables.
type write struct {
	node  ast.Node
	top   *ast.TopRowFilter
	from  *ast.FromClause
	where *ast.WhereClause
	table *ast.NamedTableReference // with the hints, wherever they stand
}

// writes returns the UPDATEs and DELETEs of our tables in a tree.
func writes(node any) (found []write) {
	add := func(node ast.Node, target ast.TableReference, w write) {
		w.node = node
		w.table = targetOf(target, w.from)
		if w.table != nil {
			found = append(found, w)
		}
	}
	for _, u := range nodes[*ast.UpdateStatement](node) {
		s := u.UpdateSpecification
		add(u, s.Target, write{top: s.TopRowFilter, from: s.FromClause, where: s.WhereClause})
	}
	for _, d := range nodes[*ast.DeleteStatement](node) {
		s := d.DeleteSpecification
		add(d, s.Target, write{top: s.TopRowFilter, from: s.FromClause, where: s.WhereClause})
	}
	return found
}

// targetOf returns the table that a write is to, nil for a table variable. It may be named by its alias.
func targetOf(target ast.TableReference, from *ast.FromClause) *ast.NamedTableReference {
	named, ok := target.(*ast.NamedTableReference)
	if !ok || isOurs(named) {
		return named
	}
	for _, source := range sources(from) {
		if table, ok := source.(*ast.NamedTableReference); ok && table.Alias != nil && table.Alias.Value == named.SchemaObject.BaseIdentifier.Value {
			return table
		}
	}
	return nil
}

// optimizerHints returns what stands in the OPTION of a statement, in capitals and without spaces.
func optimizerHints(statement ast.Node) (kinds []string) {
	list := reflect.Indirect(reflect.ValueOf(statement)).FieldByName("OptimizerHints")
	for i := range list.Len() {
		kinds = append(kinds, strings.ToUpper(reflect.Indirect(list.Index(i).Elem()).FieldByName("HintKind").String()))
	}
	return kinds
}

// statements returns what reads or writes tables in a procedure, apart from conditions.
func statements(procedure any) (found []ast.Node) {
	walk(procedure, func(node any) bool {
		switch node := node.(type) {
		case *ast.SelectStatement:
			found = append(found, node)
		case *ast.InsertStatement:
			found = append(found, node)
		case *ast.UpdateStatement:
			found = append(found, node)
		case *ast.DeleteStatement:
			found = append(found, node)
		default:
			return true
		}
		return false
	})
	return found
}

// fromOf returns what a query takes its rows from: of a UNION, the first part.
func fromOf(query ast.QueryExpression) []any {
	switch query := query.(type) {
	case *ast.QuerySpecification:
		return sources(query.FromClause)
	case *ast.BinaryQueryExpression:
		return fromOf(query.FirstQueryExpression)
	}
	return nil
}

// outerSources returns what a statement takes its rows from, in order, apart from what its conditions look into.
func outerSources(statement ast.Node) []any {
	switch s := statement.(type) {
	case *ast.SelectStatement:
		return fromOf(s.QueryExpression)
	case *ast.InsertStatement:
		if source, ok := s.InsertSpecification.InsertSource.(*ast.SelectInsertSource); ok {
			return fromOf(source.Select)
		}
	case *ast.UpdateStatement:
		return sources(s.UpdateSpecification.FromClause)
	case *ast.DeleteStatement:
		return sources(s.DeleteSpecification.FromClause)
	}
	return nil
}

// takesKeys says whether the rows of a statement are those of given keys: by a join or by IN. What EXISTS looks into are none.
func takesKeys(statement ast.Node) bool {
	if slices.ContainsFunc(outerSources(statement), isGiven) {
		return true
	}
	return slices.ContainsFunc(nodes[*ast.BooleanInExpression](statement), func(in *ast.BooleanInExpression) bool {
		return slices.ContainsFunc(fromOf(in.Subquery), isGiven)
	})
}

// readBy returns which of our tables a statement looks into, at any depth, and how many sets of keys.
func readBy(statement ast.Node) (tables []*ast.NamedTableReference, given int) {
	for _, from := range nodes[*ast.FromClause](statement) {
		for _, ref := range sources(from) {
			if table, ok := ref.(*ast.NamedTableReference); ok && isOurs(table) {
				tables = append(tables, table)
			} else if isGiven(ref) {
				given++
			}
		}
	}
	for _, w := range writes(statement) {
		if w.from == nil {
			tables = append(tables, w.table)
		}
	}
	return tables, given
}

// line is the line of the file in which a node begins.
func line(node any) int { return int(fragment(node).FieldByName("StartLine").Int()) }

func fragment(node any) reflect.Value {
	return reflect.Indirect(reflect.ValueOf(node)).FieldByName("Fragment")
}

// A scope is a statement or query with what it takes its rows from.
type scope struct {
	node any
	from *ast.FromClause
}

// scopes returns the queries, UPDATEs and DELETEs of a tree that take rows from somewhere.
func scopes(tree any) (found []scope) {
	for _, query := range nodes[*ast.QuerySpecification](tree) {
		found = append(found, scope{query, query.FromClause})
	}
	for _, update := range nodes[*ast.UpdateSpecification](tree) {
		found = append(found, scope{update, update.FromClause})
	}
	for _, remove := range nodes[*ast.DeleteSpecification](tree) {
		found = append(found, scope{remove, remove.FromClause})
	}
	return found
}

// tables are those of ours that a scope takes its rows from.
func (s scope) tables() (found []*ast.NamedTableReference) {
	for _, ref := range sources(s.from) {
		if table, ok := ref.(*ast.NamedTableReference); ok && isOurs(table) {
			found = append(found, table)
		}
	}
	return found
}

// compared returns the columns of a table that the conditions of a scope compare as they are with what is known before the
// table is looked at: not those under an OR, nor those compared with or in a subquery.
func (s scope) compared(table *ast.NamedTableReference) (columns []string) {
	alone := len(s.tables()) == 1
	add := func(expression, with any) {
		if name := columnIn(expression, table, alone); name != "" && len(nodes[*ast.ScalarSubquery](with)) == 0 {
			columns = append(columns, name)
		}
	}
	walk(s.node, func(node any) bool {
		switch node := node.(type) {
		case *ast.QuerySpecification:
			return node == s.node
		case *ast.BooleanBinaryExpression:
			return node.BinaryExpressionType != "Or"
		case *ast.SearchedCaseExpression:
			return false
		case *ast.BooleanComparisonExpression:
			add(node.FirstExpression, node.SecondExpression)
			add(node.SecondExpression, node.FirstExpression)
		case *ast.BooleanIsNullExpression:
			if node.IsNot {
				add(node.Expression, nil)
			}
		}
		return true
	})
	return columns
}
