package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

const (
	webhooks = "../../../testdata/webhooks.ndjson.gz"
	asMain   = "ORDERS_TEST_MAIN" // set in the environment, the test program is the story itself
)

// TestMain lets the test program be what the story starts: its workers.
func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" || len(os.Args) == 2 && os.Args[1] == workerFlag {
		main()
	}
	os.Exit(m.Run())
}

func TestStory(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "odd.ndjson")
	require.NoError(t, os.WriteFile(odd, []byte(`{"topic": "one", "payload":  {"a" :1,	"b": "\u00e9é"} }`+"\r\n\n"+
		`{"topic": "other", "more": 1, "payload": null}`), 0o600))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"made up":      {nil, "published 21, delivered 20, failed 1, lost 0"},
		"webhooks":     {[]string{"-in", webhooks}, "published 205, delivered 204, failed 1, lost 0"},
		"few and odd":  {[]string{"-in", odd}, "published 3, delivered 2, failed 1, lost 0"},
		"file as -dsn": {[]string{"-dsn", "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db"))}, "published 21, delivered 20, failed 1, lost 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errOut, code := runStory(t, test.args...)
			require.Zero(t, code, "%s%s", out, errOut)
			require.Empty(t, errOut)
			require.Equal(t, test.want, lastLine(out), out)
			require.Contains(t, out, "was rolled back: no row, no message, nothing delivered")
			require.Contains(t, out, "byte for byte as published")
			// At which attempt depends on whether the worker that is killed had claimed it.
			require.Contains(t, out, ": the carrier does not answer; it comes again")
			require.Contains(t, out, "held by the dead worker")
		})
	}
}

func TestServers(t *testing.T) {
	for _, name := range []string{"OUTBOX_TEST_POSTGRES_DSN", "OUTBOX_TEST_SQLSERVER_DSN"} {
		dsn := os.Getenv(name)
		if dsn == "" {
			continue // scripts/with-databases says so
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errOut, code := runStory(t, "-dsn", dsn)
			require.Zero(t, code, "%s%s", out, errOut)
			require.Equal(t, "published 21, delivered 20, failed 1, lost 0", lastLine(out), out)
		})
	}
}

func TestBadInput(t *testing.T) {
	folder := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(folder, fmt.Sprintf("%d.ndjson", len(text)))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	half, err := os.ReadFile(webhooks)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		args []string
		want string
		code int
	}{
		"no such file":        {[]string{"-in", filepath.Join(folder, "none")}, "none", 1},
		"an empty file":       {[]string{"-in", file("\n")}, "no messages", 1},
		"a broken line":       {[]string{"-in", file(`{"topic": "t", "payload": 1}` + "\n\n" + `{"topic": "t",` + "\n")}, "line 3: ", 1},
		"no topic":            {[]string{"-in", file(`{"topic": "t", "payload": 1}` + "\n" + `{"payload": 1}`)}, `line 2: "topic" or "payload" is missing`, 1},
		"no payload":          {[]string{"-in", file(`{"topic": "t"}`)}, `line 1: "topic" or "payload" is missing`, 1},
		"a topic not allowed": {[]string{"-in", file(`{"topic": "t ", "payload": 1}`)}, "publish line-1: outbox: Topic", 1},
		"half a gzip":         {[]string{"-in", file(string(half[:len(half)/2]))}, "unexpected EOF", 1},
		"an unknown scheme":   {[]string{"-dsn", "mysql://root@localhost/x"}, `but "mysql"`, 1},
		"no scheme":           {[]string{"-dsn", "password=secret"}, "does not begin with postgres://", 1},
		"nobody there":        {[]string{"-dsn", "postgres://localhost:1/x"}, "cannot connect to PostgreSQL", 1},
		"nobody there either": {[]string{"-dsn", "sqlserver://u:secret@localhost:1?database=x"}, "cannot connect to SQL Server", 1},
		"no such folder":      {[]string{"-dsn", "file:" + filepath.ToSlash(folder) + "/no/x.db"}, "cannot connect to SQLite", 1},
		"an unknown flag":     {[]string{"-what"}, "-what", 2},
		"an argument":         {[]string{"what"}, `"what" is no flag`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := runStory(t, test.args...)
			require.Equal(t, test.code, code, "%s%s", out, errOut)
			require.Contains(t, errOut, test.want)
			require.NotContains(t, errOut, "secret")
			require.NotContains(t, out, "lost")
		})
	}
}

// TestLossIsSeen: a message that goes missing, or arrives changed, ends the story with an error.
func TestLossIsSeen(t *testing.T) {
	const deliver = "INSERT INTO {handled} (name, message_id, worker, attempt, outcome, payload) SELECT uuid, message_id, 'w', 1, 'delivered', payload FROM {outbox} WHERE uuid <> 'poison'"
	const end = "UPDATE {outbox_state} SET status = CASE (SELECT o.uuid FROM {outbox} AS o WHERE o.seq = {outbox_state}.seq) WHEN 'poison' THEN 3 ELSE 2 END"
	for name, test := range map[string]struct {
		statements []string
		want       string
		wantErr    string
	}{
		"never claimed":           {nil, "published 3, delivered 0, failed 0, lost 3", "lost"},
		"done without a handler":  {[]string{end}, "published 3, delivered 0, failed 1, lost 2", "lost"},
		"gone from the table":     {[]string{deliver, end, "DELETE FROM {outbox} WHERE uuid = 'order-2'"}, "published 3, delivered 1, failed 1, lost 1", "order-2"},
		"handled and not settled": {[]string{deliver, end, "UPDATE {outbox_state} SET status = 0 WHERE seq IN (SELECT seq FROM {outbox} WHERE uuid = 'order-1')"}, "published 3, delivered 1, failed 1, lost 1", "order-1"},
		"failed with the poison":  {[]string{deliver, "DELETE FROM {handled} WHERE name = 'order-1'", end, "UPDATE {outbox_state} SET status = 3 WHERE seq IN (SELECT seq FROM {outbox} WHERE uuid = 'order-1')"}, "published 3, delivered 1, failed 2, lost 0", "one message"},
		"changed on its way":      {[]string{deliver, end, "UPDATE {handled} SET payload = 'x' WHERE name = 'order-1'"}, "published 3, delivered 1, failed 1, lost 1", "order-1"},
		"delivered though rolled back": {[]string{deliver, end, "INSERT INTO {handled} (name, message_id, worker, attempt, outcome, payload) VALUES ('declined', '', 'w', 1, 'delivered', '')"},
			"published 3, delivered 2, failed 1, lost 0", "rolled back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			db, err := stage.Create(ctx, "", "orders", tables)
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Drop(ctx)) }()
			shop, err := openShop(db)
			require.NoError(t, err)
			orders := madeUpOrders(2)
			for _, o := range append(orders, poisonOrder(orders)) {
				require.NoError(t, shop.place(ctx, o, paid))
			}
			for _, statement := range test.statements {
				_, err := db.ExecContext(ctx, "PRAGMA ignore_check_constraints = ON; "+db.SQL(statement))
				require.NoError(t, err, statement)
			}
			result, err := shop.audit(ctx)
			require.NoError(t, err)
			var out bytes.Buffer
			require.ErrorContains(t, result.print(newScreen(&out)), test.wantErr)
			require.Equal(t, test.want, lastLine(out.String()))
		})
	}
}

// TestInterrupt stops the program while a worker is at work: nothing is left, neither the worker nor the file.
func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted there")
	}
	program, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), asMain+"=1", "TMPDIR="+folder)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut // Wait returns only when the worker has let go of it, too
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "worker 2 starts") {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			break
		}
	}
	_, err = io.Copy(io.Discard, stdout)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), errOut.String())
	require.Contains(t, errOut.String(), "stopped")
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}

func runStory(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	code = run(ctx, args, &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	return lines[len(lines)-1]
}
