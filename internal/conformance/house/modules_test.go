package house

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A scratch module is outside of the root, and has what a user's would have after go get of some of the modules.
type scratchModule struct {
	t   *testing.T
	dir string
}

// newScratchModule requires modules, named by their folders, and imports their packages. Checksums are those that the last of
// the modules has, so that nothing is fetched.
func newScratchModule(t *testing.T, folders ...string) scratchModule {
	t.Helper()
	s := scratchModule{t, t.TempDir()}
	edit, imports := []string{"mod", "edit"}, ""
	for _, folder := range folders {
		path, err := filepath.Abs(filepath.Join(root, folder))
		require.NoError(t, err)
		name := strings.TrimSuffix(module+"/"+folder, "/")
		edit = append(edit, "-require="+name+"@v0.0.0", "-replace="+name+"="+path)
		imports += fmt.Sprintf("import _ %q\n", name)
	}
	sums, err := os.ReadFile(filepath.Join(root, folders[len(folders)-1], "go.sum"))
	require.NoError(t, err)
	s.write("go.mod", "module example.com/shop\n\ngo 1.25.0\n")
	s.write("go.sum", string(sums))
	s.write("main.go", "package main\n\n"+imports+"\nfunc main() {}\n")
	s.run(edit...)
	s.run("build", "-mod=mod", "-o", filepath.Join(s.dir, "shop"), ".") // adds what is required indirectly
	return s
}

func (s scratchModule) write(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

func (s scratchModule) run(args ...string) (out string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "go", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	text, err := cmd.Output()
	require.NoError(s.t, err, "go %s\n%s", strings.Join(args, " "), &errOut)
	return string(text)
}

// packages are what is linked into the program.
func (s scratchModule) packages() []string { return strings.Fields(s.run("list", "-deps", ".")) }

// modules are those that its go.mod leads to, over any number of others.
func (s scratchModule) modules() (modules []string) {
	for edge := range strings.Lines(s.run("mod", "graph")) {
		_, to, _ := strings.Cut(strings.TrimSpace(edge), " ")
		name, _, _ := strings.Cut(to, "@")
		modules = append(modules, name)
	}
	return modules
}

// Who requires the library gets no driver and no broker client. A test package is not linked; testify is among the
// requirements, as it is among those of Watermill.
func TestAScratchModuleWithTheLibraryHasNoDriverAndNoBroker(t *testing.T) {
	s := newScratchModule(t, "")
	packages, modules := s.packages(), s.modules()
	require.Contains(t, packages, module)
	require.Contains(t, modules, "github.com/ThreeDotsLabs/watermill")
	for _, bad := range slices.Concat(testPackages, drivers, brokers, telemetry) {
		for _, p := range packages {
			require.False(t, below(p, bad), "%s is linked", p)
		}
	}
	for _, bad := range slices.Concat(drivers, brokers) {
		for _, m := range modules {
			require.False(t, below(m, bad), "%s is required", m)
		}
	}
}

func TestAScratchModuleWithAForwarderHasItsBrokerAlone(t *testing.T) {
	for folder, client := range map[string]string{
		"forwarder/kafka": "github.com/twmb/franz-go", "forwarder/amqp": "github.com/rabbitmq/amqp091-go",
	} {
		t.Run(folder, func(t *testing.T) {
			s := newScratchModule(t, "", folder)
			packages, modules := s.packages(), s.modules()
			require.Contains(t, modules, client)
			require.Contains(t, strings.Join(packages, "\n"), client)
			for _, bad := range slices.Concat(testPackages, drivers, brokers) {
				for _, p := range packages {
					require.False(t, below(p, bad) && !below(p, client), "%s is linked", p)
				}
			}
			for _, bad := range drivers {
				for _, m := range modules {
					require.False(t, below(m, bad), "%s is required", m)
				}
			}
		})
	}
}

// What a module of its own requires is in no other module's go.mod: the library and the parts that users require stay small.
func TestModulesRequireNoMoreThanTheyUse(t *testing.T) {
	for folder, allowed := range map[string][]string{
		"":                   {"github.com/google/uuid"},
		"forwarder/kafka":    {module, "github.com/twmb/franz-go"},
		"forwarder/amqp":     {module, "github.com/rabbitmq/amqp091-go", "github.com/ThreeDotsLabs/watermill-amqp/v2"},
		"wake/pgx":           {module, "github.com/jackc/pgx/v5"},
		"watermillsql":       {module, "github.com/ThreeDotsLabs/watermill-sql/v3"},
		"observe/otel":       {module, "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/sdk"}, // the tests' is the last
		"observe/prometheus": {module, "github.com/prometheus/client_golang"},
	} {
		allowed = append(allowed, "github.com/ThreeDotsLabs/watermill", "github.com/stretchr/testify", "go.uber.org/goleak") // the tests' are the last two
		text, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
		require.NoError(t, err)
		direct, _, found := strings.Cut(string(text), "\n)")
		require.True(t, found)
		_, direct, _ = strings.Cut(direct, "require (\n")
		for line := range strings.Lines(direct) {
			require.Contains(t, allowed, strings.Fields(line)[0], "the go.mod in %q", folder)
		}
	}
}

// go.work has every module of the root, and dependabot looks at each.
func TestEveryModuleIsInTheWorkspace(t *testing.T) {
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	dependabot, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	require.NoError(t, err)
	found := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		found++
		folder, err := filepath.Rel(root, filepath.Dir(path))
		folder = filepath.ToSlash(folder)
		use, directory := "./"+folder, "/"+folder
		if folder == "." {
			use, directory = ".", "/"
		}
		require.Contains(t, string(work), "\n\t"+use+"\n")
		require.Contains(t, string(dependabot), fmt.Sprintf("%q", directory))
		return err
	}))
	require.Equal(t, found, strings.Count(string(work), "\n\t."))
}
