package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/internal/testdb"
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
		"no PostgreSQL":        {[]string{"-figure", "wal"}, "-figure: wal needs -backend postgres: it measures PostgreSQL's write-ahead log"},
		"no payload":           {[]string{"-payload", "0"}, "-payload: 0 is not between 1 and 67108864 bytes"},
		"less than none":       {[]string{"-payload", "-1"}, "-payload: -1 is not between"},
		"too large a payload":  {[]string{"-payload", "67108865"}, "-payload: 67108865 is not between"},
		"no size":              {[]string{"-payload", "16k"}, `invalid value "16k" for flag -payload`},
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

func readResults(t *testing.T, out *bytes.Buffer, backend string, payload int) (results []result) {
	t.Helper()
	for lines := json.NewDecoder(out); lines.More(); {
		var r result
		require.NoError(t, lines.Decode(&r))
		require.Equal(t, backend, r.Backend)
		require.Equal(t, payload, r.Payload)
		require.Positive(t, r.Value, r.Figure)
		require.Positive(t, r.Bare, r.Figure)
		require.Positive(t, r.Ratio, r.Figure)
		require.NotEmpty(t, r.Unit)
		results = append(results, r)
	}
	return results
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
	want := len(figures) - 3 // without forward, wal and drain_call
	if url := os.Getenv("OUTBOX_TEST_AMQP_URL"); url != "" {
		args, want = append(args, "-amqp", url), want+1
	}
	code := run(t.Context(), args, &out, &errOut)
	require.Zero(t, code, errOut.String())
	require.Empty(t, errOut.String())

	seen := map[string]bool{}
	for _, r := range readResults(t, &out, "sqlite", 256) {
		seen[r.Figure] = true
	}
	require.Len(t, seen, want)
	require.NotContains(t, seen, wal)
	require.NotContains(t, seen, drainCall)

	table, err := openTable(t.Context(), "sqlite", dsn, "bench")
	require.NoError(t, err)
	defer func() { require.NoError(t, table.Close()) }()
	left, err := stage.DropStatements(t.Context(), table.DB, table.dialect, "bench")
	require.NoError(t, err)
	require.Empty(t, left)
}

// What is put in, by whichever way, has the payload that was asked for.
func TestPayload(t *testing.T) {
	table, err := createTable(t.Context(), "sqlite", "")
	require.NoError(t, err)
	defer func() { require.NoError(t, table.drop()) }()
	b := &bench{table: table, payload: newPayload(1536), scale: 1, log: io.Discard}
	inserts, err := b.inserts(1)
	require.NoError(t, err)
	product, err := b.productPublish()
	require.NoError(t, err)
	require.NoError(t, b.fill(t.Context(), 1, 1, false))
	require.NoError(t, b.barePublish(inserts[0])(t.Context(), 1))
	require.NoError(t, product(t.Context(), 1))

	worker, err := b.bareWorker(t.Context(), "ack")
	require.NoError(t, err)
	defer func() { require.NoError(t, worker.Close()) }()
	_, messages, err := worker.take(t.Context(), topicName(0), 10)
	require.NoError(t, err)
	require.Len(t, messages, 3)
	for _, m := range messages {
		require.Equal(t, b.payload, m.payload)
	}
}

// Large messages are fewer, so that a figure does not fill the disk.
func TestLargeMessagesAreFewer(t *testing.T) {
	for size, want := range map[int]int{1: 1_000_000, 256: 1_000_000, 16384: 65_536, largestPayload: 16} {
		b := &bench{payload: make([]byte, size), scale: 1}
		require.Equal(t, want, b.count(1_000_000), size)
	}
}

// A loop of claims and acks calls twice a batch, and its calls are counted.
func TestRoundtrips(t *testing.T) {
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"-figure", "roundtrips", "-payload", "100", "-json", "-runs", "1", "-scale", "0.002"}, &out, &errOut)
	require.Zero(t, code, errOut.String())
	results := readResults(t, &out, "sqlite", 100)
	require.Len(t, results, 1)
	require.EqualValues(t, 20, results[0].Bare)
	require.GreaterOrEqual(t, results[0].Value, 2.0) // no more than 1,000 are claimed or settled in one call
}

// The write-ahead log is measured on PostgreSQL, where no less is written than is put in, and refused elsewhere.
func TestLong_Costs(t *testing.T) {
	testdb.ForEach(t, func(t *testing.T, db *testdb.DB) {
		for _, payload := range []int{256, 1536, 16384} {
			var out, errOut bytes.Buffer
			args := []string{"-backend", db.Name, "-dsn", db.DSN, "-figure", "wal,roundtrips", "-payload", strconv.Itoa(payload),
				"-json", "-runs", "1", "-scale", "0.01"}
			code := run(t.Context(), args, &out, &errOut)
			if db.Name != testdb.Postgres {
				require.NotZero(t, code)
				require.Contains(t, errOut.String(), "wal needs -backend postgres")
				continue
			}
			require.Zero(t, code, errOut.String())
			require.Empty(t, errOut.String())
			results := readResults(t, &out, "postgres", payload)
			require.Len(t, results, 3)
			require.Equal(t, []string{"publish", "drain", ""}, []string{results[0].Of, results[1].Of, results[2].Of})
			require.Greater(t, results[0].Value, float64(payload))
			require.Greater(t, results[0].Bare, float64(payload))
			require.EqualValues(t, 20, results[2].Bare)
			require.GreaterOrEqual(t, results[2].Value, 2.0) // no more than 1,000 are claimed or settled in one call
		}
	})
}
