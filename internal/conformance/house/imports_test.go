package house

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/incursa/watermill-outbox"

// floors are the library's packages from the ground up. A package imports only those of floors below its own.
var floors = [][]string{
	{"internal/base", "internal/kept", "internal/limits", "internal/quiet", "schema"},
	{"internal/dialect", "internal/field", "internal/flow", "internal/seam"},
	{"internal/engine"},
	{"internal/install"},
	{""}, // the root: queue, log, publisher and subscriber
	{"join"},
	{"admin", "eventstore", "fanout", "forwarder", "inbox", "stores", "wake/pgx", "watermillsql"},
	{"forwarder/amqp", "forwarder/amqp/wmamqp", "forwarder/kafka", "internal/measure", "middleware"},
	{"console", "observe", "observe/health", "observe/otel", "observe/prometheus", "outboxtest", "pgxoutbox"},
}

// The others are programs, and what tests are made of. No package of a floor imports them.
var others = []string{
	"cmd", "examples", "internal/cmd", "internal/conformance", "internal/demo", "internal/faults", "internal/rabbitmq",
	"internal/skipped", "internal/testbroker", "internal/testbrowser", "internal/testdb", "internal/testexample", "internal/testforwarder",
	"internal/testoutbox", "internal/testprocess", "internal/testserver",
}

func TestImportsPointDown(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, module+"/...").Output()
	require.NoError(t, err)
	checked := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		importer := within(words[0])
		if isOther(importer) {
			continue
		}
		above, known := floorOf(importer)
		require.True(t, known, "%q is on no floor, and not among the others", importer)
		for _, path := range words[1:] {
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			checked++
			below, known := floorOf(within(path))
			require.True(t, known && below < above, "%q imports %q, which is not on a floor below it", importer, within(path))
		}
	}
	require.Greater(t, checked, 50)
}

// within is a package's path in the module; the root's is empty.
func within(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

func floorOf(name string) (number int, known bool) {
	for number, floor := range floors {
		for _, on := range floor {
			if on == name {
				return number, true
			}
		}
	}
	return 0, false
}

func isOther(name string) bool {
	for _, other := range others {
		if name == other || strings.HasPrefix(name, other+"/") {
			return true
		}
	}
	return false
}
