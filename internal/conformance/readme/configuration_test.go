package readme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The configs of which docs/configuration.md has a table, by the name at its head: the folder, and the type.
var configs = map[string][2]string{
	"SubscriberConfig":            {".", "SubscriberConfig"},
	"JanitorConfig":               {".", "JanitorConfig"},
	"PublisherConfig":             {".", "PublisherConfig"},
	"SequencerConfig":             {".", "SequencerConfig"},
	"MigrateConfig":               {".", "MigrateConfig"},
	"outbox.Config":               {".", "Config"},
	"join.Config":                 {"join", "Config"},
	"eventstore.Config":           {"eventstore", "Config"},
	"eventstore.ProjectionConfig": {"eventstore", "ProjectionConfig"},
	"forwarder.Config":            {"forwarder", "Config"},
}

// The tables have every field of the config, in order, and the default that its comment says.
func TestConfigurationTablesAreComplete(t *testing.T) {
	page := parse(read(t, "docs/configuration.md"))
	for config, of := range configs {
		var documented []string
		defaults := map[string]string{}
		for _, row := range page.tableUnder("`" + config + "`") {
			for _, name := range code.FindAllString(row[0], -1) {
				name = strings.Trim(name, "`")
				documented = append(documented, name)
				defaults[name] = strings.ReplaceAll(row[1], "`", "")
			}
		}
		var fields []string
		for _, field := range structFields(t, of[0], of[1]) {
			comment := strings.Join(strings.Fields(field.Doc.Text()), " ")
			for _, name := range field.Names {
				fields = append(fields, name.Name)
				if defaults[name.Name] != "Required" {
					require.Regexp(t, `Defaults? to `+regexp.QuoteMeta(defaults[name.Name])+`(\W|$)`, comment, "the default of %s.%s", config, name.Name)
				} else {
					require.Contains(t, comment, "Required.", "the default of %s.%s", config, name.Name)
				}
			}
		}
		require.Equal(t, fields, documented, config)
	}
}

// The console's page has every field of its config, in any order.
func TestTheConsolesTableIsComplete(t *testing.T) {
	var documented, fields []string
	for _, row := range parse(read(t, "docs/console.md")).tableUnder("Field") {
		for _, name := range code.FindAllString(row[0], -1) {
			documented = append(documented, strings.Trim(name, "`"))
		}
	}
	for _, field := range structFields(t, "console", "Config") {
		fields = append(fields, field.Names[0].Name)
	}
	require.ElementsMatch(t, fields, documented)
}

// Every other config that a user fills in is led to.
func TestConfigurationLeadsToTheOtherConfigs(t *testing.T) {
	links := parse(read(t, "docs/configuration.md")).links()
	for _, folder := range []string{"fanout", "inbox", "stores", "middleware", "forwarder/amqp", "forwarder/kafka", "wake/pgx", "watermillsql",
		"observe/prometheus", "observe/otel", "observe/health", "console"} {
		require.True(t, slices.ContainsFunc(links, func(link string) bool {
			return strings.HasPrefix(link, "../") && path.Dir(strings.TrimPrefix(link, "../")) == folder
		}), folder)
	}
}

// structFields are the fields of a struct of a package, by its folder.
func structFields(t *testing.T, folder, name string) (fields []*ast.Field) {
	t.Helper()
	for _, file := range sources(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			structure, ok := spec.Type.(*ast.StructType)
			require.True(t, ok, "%s should be a struct", name)
			fields = structure.Fields.List
			return false
		})
	}
	require.NotEmpty(t, fields, "the package %s should have the struct %s", folder, name)
	return fields
}

// sources are the files of a package, without its tests.
func sources(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	files := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
	}
	return files
}
