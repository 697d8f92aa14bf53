package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command line that cannot be run exits with 2, whatever is wrong with it.
func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"help bogus":      `unknown command "bogus"`,
		"help dead bogus": `unknown command "bogus"`,
		"completion foo":  `unknown command "foo"`,
		"completion":      "say for which shell",
		"doctor --dsn postgres://me@there:port/db":  "the DSN cannot be read",
		"doctor --dsn sqlserver://me@there:port":    "the DSN cannot be read",
		"console --listen nonsense --dsn a.db":      "--listen nonsense",
		"console --listen 127.0.0.1 --dsn a.db":     "--listen 127.0.0.1: ",
		"console --listen 10.0.0.1:8420 --dsn a.db": "is reached from other machines",
		"console --listen :8420 --dsn a.db":         "is reached from other machines",
	} {
		code, out, errOut := runStreams(t.Context(), Streams{}, strings.Fields(line)...)
		require.Equal(t, exitUsage, code, "%s: %s", line, errOut)
		require.Empty(t, out, line)
		require.Contains(t, errOut, want, line)
		if strings.HasPrefix(line, "console --listen n") || strings.Contains(line, "127") {
			require.NotContains(t, errOut, "other machines")
		}
	}
	for _, line := range []string{"help", "help dead", "help dead list", "help help", "completion bash", "completion --help"} {
		code, out, errOut := runStreams(t.Context(), Streams{}, strings.Fields(line)...)
		require.Equal(t, exitOK, code, "%s: %s", line, errOut)
		require.NotEmpty(t, out)
	}
}

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// What cannot be written is no trouble of the database, nor of the command line.
func TestOutputThatCannotBeWritten(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 3)
		f.streams.Out = full{}
		for _, line := range []string{"topics", "topics -o json", "message list", "check", "version"} {
			code, _, errOut := f.run(strings.Fields(line)...)
			f.Equal(exitTrouble, code, line)
			f.Equal("outbox: the output cannot be written: no space left on device\n", errOut, line)
		}
	})
}
