package schema_test

import (
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// The rules about what is taken for something else: a text for another, a locked row for none.

// comparesByCodePoint: between variables and literals the database's collation decides. Characters that it has no weight for are
// nothing to it, and Q is q. Columns have a collation of their own; what a word of the library's own is, CASE may tell.
func comparesByCodePoint(p *procedure) (found []finding) {
	texts := map[string]bool{}
	add := func(name *ast.Identifier, of any) {
		for _, kind := range nodes[*ast.SqlDataTypeReference](of) {
			if strings.HasSuffix(strings.ToUpper(kind.SqlDataTypeOption), "CHAR") {
				texts[name.Value] = true
			}
		}
	}
	for _, parameter := range p.Parameters {
		add(parameter.VariableName, parameter.DataType)
	}
	for _, variable := range nodes[*ast.DeclareVariableElement](p.StatementList) {
		add(variable.VariableName, variable.DataType)
	}
	isText := func(expression any) bool {
		variable, ok := expression.(*ast.VariableReference)
		return ok && texts[variable.Name]
	}
	isLoose := func(expression any) bool {
		_, literal := expression.(*ast.StringLiteral)
		return literal || isText(expression)
	}
	compare := func(node any, all ...any) {
		f := finding{node: node}
		if slices.ContainsFunc(all, isText) && !slices.ContainsFunc(all, func(one any) bool { return !isLoose(one) }) {
			f.broken = "the database's collation compares " + p.says(node)
		}
		found = append(found, f)
	}
	walk(p.StatementList, func(node any) bool {
		switch node := node.(type) {
		case *ast.BooleanComparisonExpression:
			compare(node, node.FirstExpression, node.SecondExpression)
		case *ast.NullIfExpression:
			compare(node, node.FirstExpression, node.SecondExpression)
		case *ast.SimpleCaseExpression:
			for _, when := range node.WhenClauses {
				compare(node, node.InputExpression, when.WhenExpression)
			}
		case *ast.BooleanInExpression:
			for _, value := range node.Values {
				compare(node, node.Expression, value)
			}
		}
		return true
	})
	return found
}

// heldForLong are the tables whose rows a caller's transaction may hold while it works.
var heldForLong = []string{"Outbox_Paused", "Outbox_Log_Group"}

// takesNoLockedRowForNone: READPAST says that a locked row is not there. That holds for work that somebody else is doing; but a
// pause that is being changed is one, and so is a group that reads.
func takesNoLockedRowForNone(p *procedure) (found []finding) {
	written := writes(p)
	for _, table := range nodes[*ast.NamedTableReference](p) {
		if !isOurs(table) || !slices.Contains(heldForLong, table.SchemaObject.BaseIdentifier.Value) ||
			slices.ContainsFunc(written, func(w write) bool { return w.table == table }) {
			continue
		}
		f := finding{node: table}
		if has(table, "READPAST") {
			f.broken = "a locked row of " + table.SchemaObject.BaseIdentifier.Value + " is taken for none"
		}
		found = append(found, f)
	}
	return found
}

// addsWhatItDoesNotHave: what one of our tables does not have now, it may have had a statement ago, and the row was added then.
func addsWhatItDoesNotHave(p *procedure) (found []finding) {
	for _, list := range nodes[*ast.StatementList](p) {
		filled := map[string]bool{}
		for _, statement := range list.Statements {
			insert, ok := statement.(*ast.InsertStatement)
			if !ok {
				continue
			}
			target, ok := insert.InsertSpecification.Target.(*ast.VariableTableReference)
			if !ok {
				continue
			}
			name := target.Variable.Name
			f := finding{node: insert}
			var looked []any
			for _, exists := range nodes[*ast.ExistsPredicate](insert) {
				looked = append(looked, fromOf(exists.Subquery)...)
			}
			if filled[name] && slices.ContainsFunc(looked, isOurs) && !slices.ContainsFunc(looked, func(ref any) bool {
				variable, ok := ref.(*ast.VariableTableReference)
				return ok && variable.Variable.Name == name
			}) {
				f.broken = name + " may have the row already"
			}
			filled[name] = true
			found = append(found, f)
		}
	}
	return found
}
