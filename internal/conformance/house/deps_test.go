package house

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the library and its packages must not bring with them.
var (
	drivers = []string{
		"github.com/jackc/pgx", "github.com/lib/pq", "github.com/microsoft/go-mssqldb", "github.com/denisenkom/go-mssqldb", "modernc.org",
		"github.com/mattn/go-sqlite3", "github.com/ncruces/go-sqlite3", "github.com/go-sql-driver/mysql",
	}
	brokers = []string{
		"github.com/rabbitmq", "github.com/streadway/amqp", "github.com/IBM/sarama", "github.com/Shopify/sarama", "github.com/twmb/franz-go",
		"github.com/segmentio/kafka-go", "github.com/nats-io", "cloud.google.com", "github.com/aws", "github.com/ThreeDotsLabs/watermill-amqp",
		"github.com/ThreeDotsLabs/watermill-kafka", "github.com/ThreeDotsLabs/watermill-nats",
	}
	telemetry    = []string{"github.com/prometheus", "go.opentelemetry.io"}
	testPackages = []string{
		"testing", "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/sqlc-dev/teesql",
		module + "/internal/conformance", module + "/internal/testdb", module + "/internal/faults",
	}
)

// below reports whether a path is a root, or is below it.
func below(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// Users of the library get no driver, no broker client and no test package with it.
func TestTheLibraryImportsNoDriverNoBrokerAndNoTestPackage(t *testing.T) {
	packages := goList(t, module+"/...")
	var library []string
	for _, p := range packages {
		within := strings.TrimPrefix(strings.TrimPrefix(p, module), "/")
		first, _, _ := strings.Cut(within, "/")
		switch first {
		case "examples", "cmd", "internal", "wake":
		case "observe": // prometheus and otel are modules for those who want them
			if within == "observe/health" {
				library = append(library, p)
			}
		case "forwarder": // its packages for brokers are for those who want them; it is itself for everybody
			if within == first {
				library = append(library, p)
			}
		default:
			library = append(library, p)
		}
	}
	require.Contains(t, library, module)
	require.Contains(t, library, module+"/middleware")
	require.Contains(t, library, module+"/forwarder")

	forbidden := slices.Concat(testPackages, drivers, brokers, telemetry)
	edges := goList(t, append([]string{"-f", "{{$p := .ImportPath}}{{range .Deps}}{{$p}}>{{.}}\n{{end}}"}, library...)...)
	require.Greater(t, len(edges), 100)
	for _, edge := range edges {
		p, dependency, _ := strings.Cut(edge, ">")
		for _, bad := range forbidden {
			require.False(t, below(dependency, bad), "%s imports %s", p, dependency)
		}
	}
	kafka := strings.Join(goList(t, "-deps", module+"/forwarder/kafka"), "\n")
	require.Contains(t, kafka, "github.com/twmb/franz-go")
	require.NotContains(t, kafka, "github.com/IBM/sarama")
	require.NotContains(t, kafka, "github.com/twmb/franz-go/pkg/kfake")
	// The list finds what it is to find: the tests' own packages do import these.
	all := strings.Join(goList(t, "-deps", "-test", module+"/internal/conformance/queue"), "\n")
	for _, present := range []string{"github.com/jackc/pgx", "github.com/microsoft/go-mssqldb", "modernc.org/", "testing", "github.com/stretchr/testify"} {
		require.Contains(t, all, present)
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
