package readme

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxNames is how many names the root package may export: what a user calls, and no wiring between our packages, which goes
// through internal/seam.
const maxNames = 150

// A name is a type, function, constant or variable, a method of an exported type, or a method of an interface: all that go doc
// prints but the fields of structs.
func TestThePublicAPIStaysSmall(t *testing.T) {
	var names []string
	for _, file := range sources(t, ".") {
		for _, declaration := range file.Decls {
			names = append(names, exportedBy(declaration)...)
		}
	}
	slices.Sort(names)
	require.Contains(t, names, "Subscriber.Close") // it counts methods
	require.Contains(t, names, "Ready")            // and each constant of a group
	require.LessOrEqual(t, len(names), maxNames, "the root package exports too much:\n%s", strings.Join(names, "\n"))
}

func exportedBy(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() {
			return nil
		}
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		if receiver := typeName(d.Recv.List[0].Type); ast.IsExported(receiver) {
			return []string{receiver + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					names = append(names, s.Name.Name)
					names = append(names, interfaceMethods(s)...)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

func interfaceMethods(spec *ast.TypeSpec) (names []string) {
	if face, ok := spec.Type.(*ast.InterfaceType); ok {
		for _, method := range face.Methods.List {
			for _, name := range method.Names {
				names = append(names, spec.Name.Name+"."+name.Name)
			}
		}
	}
	return names
}

// typeName is the type of a receiver.
func typeName(expression ast.Expr) string {
	if pointer, ok := expression.(*ast.StarExpr); ok {
		expression = pointer.X
	}
	name, _ := expression.(*ast.Ident)
	return name.Name
}
