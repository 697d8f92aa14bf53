package cli

import (
	"bytes"
	"context"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The scripts need no database, and are those of the library under the names that the flags give.
func TestScriptsAreThoseOfTheLibrary(t *testing.T) {
	for _, d := range []outbox.Dialect{outbox.SQLServer{}, outbox.Postgres{}, outbox.SQLite{}} {
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			config := outbox.MigrateConfig{Dialect: d, Table: "Parcels", WithoutJoins: true}
			if d.Name() != (outbox.SQLite{}).Name() {
				config.Schema, config.Role = "shop", "parcel_service"
			}
			queue := inbox.Config{Dialect: d, Schema: config.Schema, Table: "Parcels"}
			names := []string{"--dialect", d.Name(), "--table", "Parcels", "--schema", config.Schema}
			prints := func(want string, err error, args ...string) {
				t.Helper()
				require.NoError(t, err)
				code, out, errOut := runStreams(t.Context(), Streams{}, append(args, names...)...)
				require.Equal(t, exitOK, code, errOut)
				require.Equal(t, want, out)
			}
			script, err := outbox.MigrationSQL(config)
			prints(script, err, "migrate", "sql", "--without-joins")
			script, err = inbox.MigrationSQL(queue)
			prints(script, err, "migrate", "sql", "--inbox")
			script, err = outbox.RoleSQL(config)
			prints(script, err, "migrate", "role", "--without-joins", "--role", config.Role)
		})
	}
}

func TestScriptsRefuseWhatTheyCannotPrint(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"migrate sql":                                            "name the dialect with --dialect, or the database with --dsn",
		"migrate role --dialect oracle":                          `--dialect "oracle" is unknown`,
		"migrate role --dialect postgres --inbox --role a":       "[inbox role]",
		"migrate sql --dialect postgres --inbox --without-joins": "[inbox without-joins]",
	} {
		code, out, errOut := runStreams(t.Context(), Streams{}, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, out)
		require.Contains(t, errOut, want)
	}
}

// Whoever migrates is told what, and whether anything has changed.
func TestMigrateSaysWhat(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		schema := f.DB.Schema
		if schema == "" {
			schema = "main"
		}
		for _, part := range []string{"", "--inbox"} {
			args, table := []string{"migrate", "up", "--table", "parcels"}, schema+".parcels"
			if part != "" {
				args, table = append(args[:2:2], part), schema+".inbox"
			}
			out := f.ok(args...)
			require.Contains(t, out, table)
			require.Contains(t, out, " was installed or brought up to date: ")
			out = f.ok(args...)
			require.Contains(t, out, table)
			require.Contains(t, out, " is installed and up to date; nothing was changed: ")
			require.Contains(t, f.ok(append(args, "-o", "json")...), `"changed":false}`)
		}
	})
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		code, out, _ := runStreams(t.Context(), Streams{}, args...)
		require.Equal(t, exitOK, code)
		require.Regexp(t, `^outbox +\S+`, out)
	}
	b := newBuild(&debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Version: "v1"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-01T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}}})
	require.Equal(t, build{"v1", "abc, changed since", "2026-01-01T00:00:00Z", "go1"}, b)
}

// Who lacks rights is told how to get them.
func TestALoginWithoutRights(t *testing.T) {
	on(t, testdb.Postgres, func(t *testing.T, f *fixture) { // a session can take a role when it begins
		role := "nobody_" + f.DB.Schema
		f.Exec("CREATE ROLE %s", role)
		defer f.Exec("DROP ROLE %s", role)
		f.dsn = f.DB.DSN + "&options=-c%20role%3D" + role
		code, _, errOut := f.run("message", "list")
		require.Equal(t, exitDatabase, code, errOut)
		require.Contains(t, errOut, "permission denied")
		require.Contains(t, errOut, "Run the script of 'outbox migrate role', and add the login to the role.\n")
		code, _, errOut = f.run("migrate", "up")
		require.Equal(t, exitDatabase, code, errOut)
		require.Contains(t, errOut, "as a login that may create tables")
	})
}

// Topics are listed again and again until the command is interrupted, which is no error.
func TestTopicsAreWatched(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		screen := &watched{lists: 3, end: interrupt}
		f.streams.Out = screen
		code, _, errOut := f.runIn(ctx, "topics", "--watch", "--interval", "100ms")
		require.Equal(t, exitOK, code, errOut)
		require.Equal(t, 3, strings.Count(screen.String(), "orders  1 "), screen.String())
	})
}

// Who watches is told of a round that fails, and sees the next.
func TestWatchingGoesOnAfterAFailure(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		f.publish(outbox.Message{Topic: "orders"})
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		rounds := 0
		screen := &watched{lists: 2, end: interrupt, begun: func() {
			switch rounds++; rounds {
			case 2:
				f.Exec("ALTER TABLE outbox_state RENAME TO away")
			case 3:
				f.Exec("ALTER TABLE away RENAME TO outbox_state")
			}
		}}
		f.streams.Out = screen
		code, _, errOut := f.runIn(ctx, "topics", "--watch", "--interval", "100ms")
		require.Equal(t, exitOK, code, errOut)
		require.Regexp(t, `^outbox: .*no such table`, errOut)
		require.Equal(t, 1, strings.Count(errOut, "no such table"))

		f.Exec("ALTER TABLE outbox_state RENAME TO away")
		code, _, _ = f.runIn(t.Context(), "topics", "--watch")
		require.Equal(t, exitTrouble, code, "what has never worked ends it")
	})
}

// Programs see when each round was, and that a number is no more than a bound.
func TestTopicsForPrograms(t *testing.T) {
	onSQLite(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 10_001)
		f.publish(outbox.Message{Topic: "bills"})
		f.streams.Now = func() time.Time { return time.Unix(1_700_000_000, 0) }
		lines := strings.Split(f.ok("topics", "-o", "json"), "\n")
		require.Contains(t, lines[0], `{"at":"2023-11-14T22:13:20Z","topic":"bills","waiting":1,"age_seconds"`)
		require.Contains(t, lines[1], `"waiting":10000,"waiting_capped":true,`)
	})
}

// A watched screen interrupts the command once it has shown so many lists.
type watched struct {
	bytes.Buffer
	lists int
	end   func()
	begun func() // called for the time above each list, or nil
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.begun != nil && bytes.HasPrefix(p, []byte("20")) {
		w.begun()
	}
	if strings.Count(w.String(), "orders  1 ") == w.lists {
		w.end()
	}
	return n, err
}
