package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// A command line that cannot be run exits with 2, whatever is wrong with it.
func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"help bogus":      `unknown command "bogus"`,
		"help dead bogus": `unknown command "bogus"`,
		"completion foo":  `unknown command "foo"`,
		"completion":      "say for which shell",
		"doctor --dsn postgres://me@there:port/db":                                    "the DSN cannot be read",
		"doctor --dsn sqlserver://me@there:port":                                      "the DSN cannot be read",
		"doctor --dsn sqlserver://there?database=shop&fedauth=ActiveDirectoryDefault": "cannot sign in with Entra",
		"console --listen nonsense --dsn a.db":                                        "--listen nonsense",
		"console --listen 127.0.0.1 --dsn a.db":                                       "--listen 127.0.0.1: ",
		"console --listen 10.0.0.1:8420 --dsn a.db":                                   "is reached from other machines",
		"console --listen :8420 --dsn a.db":                                           "is reached from other machines",
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

// What is wrong with a value is said in the words of the command line, not in those of the library.
func TestBadValuesAreNamedAsTheyWereTyped(t *testing.T) {
	onSQLite(t, func(_ *testing.T, f *fixture) {
		for _, bad := range []struct{ want, line string }{
			{`invalid argument "-1" for "-n, --limit" flag: write a number from 1 to 1,000`, "dead list --limit -1"},
			{`for "-n, --limit" flag: write a number from 1 to 1,000`, "message list --limit 0"},
			{`for "-n, --limit" flag`, "dead errors -n 1001"},
			{`for "-n, --limit" flag`, "audit list -n 0"},
			{`for "-n, --limit" flag`, "stream list -n 0"},
			{`for "-n, --limit" flag`, "log dead list g -n 0"},
			{`for "-n, --limit" flag`, "join list -n 0"},
			{`for "--examine" flag: write a number from 1`, "message list --examine 0"},
			{"outbox: the topic is empty\n", "topic pause "},
			{"outbox: the topic is empty; every message needs a topic\n", "message publish  --payload x"},
			{"outbox: --until is before --since\n", "dead list --until 2026-01-01 --since 2026-01-02"},
			{"outbox: --header outbox_expires_at is not", "message publish a --payload x --header outbox_expires_at=x"},
			{"outbox: --reason is longer than", "topic pause a --reason " + strings.Repeat("x", 5000)},
			{"outbox: --topic ", "dead list --topic " + strings.Repeat("x", 500)},
			{"outbox: --by ", "topic pause a --by " + strings.Repeat("x", 500)},
		} {
			code, out, errOut := f.run(strings.Split(bad.line, " ")...)
			f.Equal(exitUsage, code, "%s: %s", bad.line, errOut)
			f.Empty(out)
			f.Contains(errOut, bad.want, bad.line)
		}
	})
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

// A connection string is recognised as people have it: a URL, or copied from a .NET service.
func TestDSNsOfSQLServer(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"sqlserver://me:x@sql01?database=shop", "server=sql01;database=shop", "Server=tcp:sql01,1433;Initial Catalog=shop",
		"Data Source=sql01;Initial Catalog=shop;User ID=me;Password=x", "User ID=me;Password=x;Data Source=sql01;Initial Catalog=shop",
		"Addr=sql01; Database = shop", "Data Source=sql01", "Data Source=sql01;Initial Catalog=shop.db",
	} {
		dialect, err := dialectOf(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, outbox.SQLServer{}, dialect, dsn)
	}
	for _, dsn := range []string{"shop.db", "sqlite:server.db", "file:a.db?_txlock=immediate"} {
		dialect, err := dialectOf(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, outbox.SQLite{}, dialect, dsn)
	}
}
