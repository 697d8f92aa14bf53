package readme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root = "../../.."
	own  = "internal/conformance" // where this package's go.mod is
	up   = "../.."                // from there to the root
)

// The documents that are checked for what they name.
var documents = []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
	"docs/architecture.md", "docs/brokers.md", "docs/cdc.md", "docs/cli.md", "docs/configuration.md", "docs/console.md", "docs/databases.md", "docs/deployment.md",
	"docs/eventstore.md", "docs/guide.md", "docs/locks.md", "docs/locks-postgresql.md", "docs/operations.md", "docs/performance.md", "docs/sqlserver.md",
	"docs/telemetry.md", "docs/testing.md", "docs/troubleshooting.md", "docs/upgrading.md", "docs/watermill-sql.md", "examples/README.md"}

// The list above is all there is.
func TestEveryPageIsChecked(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	for _, page := range pages {
		require.Contains(t, documents, "docs/"+filepath.Base(page))
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

func eachDocument(t *testing.T, test func(t *testing.T, path string, d document)) {
	t.Helper()
	for _, path := range documents {
		t.Run(path, func(t *testing.T) { test(t, path, parse(read(t, path))) })
	}
}

// A scratch module is made from the README's program and its go get lines. The versions are those of the tests' own
// go.mod, so that nothing is fetched that the project does not use itself.
func TestProgramRunsFromTheTextAlone(t *testing.T) {
	t.Parallel()
	d := parse(read(t, "README.md"))
	require.NotEmpty(t, d.program(), "README.md should have one block of Go that is a program")
	require.NotEmpty(t, d.output(), "README.md should have one block of output")

	for _, path := range imports(t, d.program()) {
		require.True(t, slices.ContainsFunc(d.modules(), func(module string) bool {
			return path == module || strings.HasPrefix(path, module+"/")
		}), "the program imports %s, which no go get line of README.md brings", path)
	}

	dir := scratchModule(t, d.program())
	for _, m := range d.modules() {
		goCommand(t, dir, "list", "-m", m) // fails for a module that go.mod does not have
	}
	require.Equal(t, d.output(), goCommand(t, dir, "run", "."))
}

// scratchModule is a module of its own, outside the repository, with a program that passes go vet.
func scratchModule(t *testing.T, program string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("main.go", program)
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	// Of this repository it is what is here.
	write("go.mod", strings.ReplaceAll(read(t, own+"/go.mod"), "=> "+up, "=> "+filepath.ToSlash(repository)))
	write("go.sum", read(t, own+"/go.sum"))
	goCommand(t, dir, "mod", "edit", "-module=example.com/shop")
	goCommand(t, dir, "vet", ".")
	return dir
}

// Each block of Go on a page is a program that builds, or stands in a test of this package or of the root, which runs it.
func TestGoOnThePagesCompiles(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for _, pattern := range []string{"*_test.go", "internal/conformance/readme/*_test.go"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			tests.WriteString(unindented(string(text)))
		}
	}
	eachDocument(t, func(t *testing.T, path string, d document) {
		for _, b := range d.blocks {
			switch {
			case b.language != "go" || path == "README.md":
			case strings.HasPrefix(b.text, "package main\n"):
				scratchModule(t, b.text)
			default:
				require.Contains(t, tests.String(), "\n"+unindented(b.text), "%s: no test has this block", path)
			}
		}
	})
}

// unindented is a text without the tabs that its lines begin with.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}

// goCommand runs go in a folder and returns what it prints. What it logs is shown if it fails.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	require.NoError(t, err, "go %s\n%s%s", strings.Join(args, " "), out, &log)
	return string(out)
}

// imports are those that are not of the standard library.
func imports(t *testing.T, program string) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", program, parser.ImportsOnly)
	require.NoError(t, err)
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if domain, _, _ := strings.Cut(path, "/"); strings.Contains(domain, ".") {
			paths = append(paths, path)
		}
	}
	return paths
}

// The README's ten lines stand in Example, which go test runs.
func TestExampleIsOneThatRuns(t *testing.T) {
	example := parse(read(t, "README.md")).example()
	require.NotEmpty(t, example, "README.md should have one block of Go that is an example")

	_, body, found := strings.Cut(read(t, "example_test.go"), "\nfunc Example() {\n")
	require.True(t, found, "example_test.go should have func Example")
	body, _, _ = strings.Cut(body, "\n}\n")
	var lines strings.Builder
	for line := range strings.SplitSeq(body, "\n") {
		lines.WriteString(strings.TrimPrefix(line, "\t") + "\n")
	}
	require.Contains(t, "\n"+lines.String(), "\n"+example)
	require.Contains(t, body, "// Output:")
}

func TestLinksLeadSomewhere(t *testing.T) {
	eachDocument(t, func(t *testing.T, path string, d document) {
		for _, target := range d.links() {
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			linked := d
			if file != "" {
				file = filepath.Join(filepath.Dir(path), file)
				require.FileExists(t, filepath.Join(root, file), "link %s", target)
				linked = parse(read(t, file))
			}
			if anchor != "" {
				require.Contains(t, linked.anchors(), anchor, "link %s", target)
			}
		}
	})
}

// Files and folders of the repository that stand in `code`, by the folders that there are.
func TestPathsAreThere(t *testing.T) {
	eachDocument(t, func(t *testing.T, document string, d document) {
		for _, text := range code.FindAllString(d.prose(), -1) {
			path := strings.Trim(text, "`")
			folder, _, isPath := strings.Cut(path, "/")
			if document == "docs/architecture.md" && !isPath && strings.HasSuffix(path, ".go") {
				require.FileExists(t, filepath.Join(root, path))
			}
			if !isPath || folder == "" || strings.ContainsAny(path, " *") { // an empty folder begins the path of a URL
				continue
			}
			if info, err := os.Stat(filepath.Join(root, folder)); err == nil && info.IsDir() {
				_, err := os.Stat(filepath.Join(root, path))
				require.NoError(t, err)
			}
		}
	})
}

func TestMakeTargetsAreThere(t *testing.T) {
	makefile := read(t, "Makefile")
	mention := regexp.MustCompile("(?m)(?:^ {4}|`)make ([a-z][a-z -]*)")
	eachDocument(t, func(t *testing.T, _ string, d document) {
		for _, targets := range submatches(mention, d.text) {
			targets, _, _ = strings.Cut(targets, "  ") // what follows is a comment
			for _, target := range strings.Fields(targets) {
				require.Regexp(t, `(?m)^`+target+`:`, makefile, "make %s", target)
			}
		}
	})
}

func TestRequirementsAreInScope(t *testing.T) {
	requirements := read(t, "internal/cmd/requirements/requirements.tsv")
	eachDocument(t, func(t *testing.T, _ string, d document) {
		for _, id := range regexp.MustCompile(`(?:OBX|JOIN)-\d+`).FindAllString(d.text, -1) {
			require.Contains(t, requirements, "\n"+id+"\tyes\t")
		}
	})
}

// Each outbox.Name is exported by the package.
func TestNamesAreExported(t *testing.T) {
	exported := map[string]bool{}
	for _, file := range sources(t, ".") {
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					exported[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						exported[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							exported[name.Name] = true
						}
					}
				}
			}
		}
	}
	eachDocument(t, func(t *testing.T, _ string, d document) {
		for _, name := range submatches(regexp.MustCompile(`(?:^|[^.\w])outbox\.([A-Z]\w*)`), d.text) {
			require.True(t, exported[name], "outbox.%s", name)
		}
	})
}

func TestHooksTableIsComplete(t *testing.T) {
	var documented, fields []string
	for _, row := range parse(read(t, "docs/operations.md")).tableUnder("Hook") {
		documented = append(documented, strings.Trim(row[0], "`"))
	}
	for _, field := range structFields(t, ".", "Hooks") {
		fields = append(fields, field.Names[0].Name)
	}
	require.Equal(t, fields, documented)
}

// Each file of the root is in a room that the import graph of doc.go names: subscriber_claim.go is in that of subscriber.go.
func TestImportGraphNamesTheRooms(t *testing.T) {
	_, graph, found := strings.Cut(read(t, "doc.go"), "# Import graph")
	require.True(t, found, "doc.go should have an import graph")
	named := map[string]bool{"doc": true}
	for _, line := range strings.Split(strings.Split(graph, "────\n")[1], "\n") {
		for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(strings.ReplaceAll(line, ".go", ""), -1) {
			named[word] = true
		}
	}
	for path := range sources(t, ".") {
		name := strings.TrimSuffix(filepath.Base(path), ".go")
		room, _, _ := strings.Cut(name, "_")
		require.True(t, named[name] || named[room], "doc.go should name the room of %s", path)
	}
}
