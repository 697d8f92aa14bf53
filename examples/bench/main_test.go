package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/internal/stage"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == publisherFlag {
		os.Exit(publisherMain(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestBadFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no such backend":      {[]string{"-backend", "mysql"}, `-backend: there is no "mysql"; there are sqlite, postgres, sqlserver`},
		"no DSN":               {[]string{"-backend", "postgres"}, "-backend postgres needs -dsn"},
		"no such figure":       {[]string{"-figure", "publish1,speed"}, `-figure: there is no "speed"; there are publish1, publish100,`},
		"no RabbitMQ":          {[]string{"-figure", "forward"}, "-figure: forward needs -amqp"},
		"a scale of 0":         {[]string{"-scale", "0"}, "-scale: 0 is not above 0"},
		"no runs":              {[]string{"-runs", "0"}, "-runs: 0 is less than 1"},
		"a rest":               {[]string{"-json", "drain"}, `"drain" is no flag`},
		"no number":            {[]string{"-runs", "many"}, "invalid value"},
		"an unknown flag":      {[]string{"-fast"}, "-fast"},
		"a DSN that is no DSN": {[]string{"-backend", "postgres", "-dsn", "postgres://%"}, "-dsn"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			code := run(t.Context(), test.args, &out, &errOut)
			require.NotZero(t, code)
			require.Empty(t, out.String())
			require.Contains(t, errOut.String(), test.want)
		})
	}
}

// Every figure prints lines that can be read, and nothing stays in the database.
func TestFiguresOnSQLite(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	dsn := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "bench.db")) +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	var out, errOut bytes.Buffer
	args := []string{"-dsn", dsn, "-json", "-runs", "1", "-scale", "0.002"}
	want := len(figures) - 1 // without forward
	if url := os.Getenv("OUTBOX_TEST_AMQP_URL"); url != "" {
		args, want = append(args, "-amqp", url), len(figures)
	}
	code := run(t.Context(), args, &out, &errOut)
	require.Zero(t, code, errOut.String())
	require.Empty(t, errOut.String())

	seen := map[string]bool{}
	for lines := json.NewDecoder(&out); lines.More(); {
		var r result
		require.NoError(t, lines.Decode(&r))
		require.Equal(t, "sqlite", r.Backend)
		require.Positive(t, r.Value, r.Figure)
		require.Positive(t, r.Bare, r.Figure)
		require.Positive(t, r.Ratio, r.Figure)
		require.NotEmpty(t, r.Unit)
		seen[r.Figure] = true
	}
	require.Len(t, seen, want)

	table, err := openTable(t.Context(), "sqlite", dsn, "bench")
	require.NoError(t, err)
	defer func() { require.NoError(t, table.Close()) }()
	left, err := stage.DropStatements(t.Context(), table.DB, table.dialect, "bench")
	require.NoError(t, err)
	require.Empty(t, left)
}
