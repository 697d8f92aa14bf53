// Package testoutbox gives the tests of the packages around the outbox one of their own, on each database.
package testoutbox

import (
	_ "embed"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Patience is how long a test waits for what has to happen.
const Patience = time.Minute

// An Outbox is installed in a schema of its own.
type Outbox struct {
	*require.Assertions
	*outbox.Outbox
	T  *testing.T
	DB *testdb.DB
}

// ForEach runs a test on every database.
func ForEach(t *testing.T, test func(t *testing.T, o *Outbox)) {
	t.Helper()
	t.Parallel()
	for _, backend := range testdb.Backends(t) {
		t.Run(backend.Name, func(t *testing.T) {
			t.Parallel()
			if backend.Name == testdb.SQLServer {
				one.Lock()
				t.Cleanup(one.Unlock)
			}
			test(t, New(t, backend.Open(t)))
		})
	}
}

// one is held by the one test that runs on SQL Server, which may be a slow one: tests look at their tables all the time.
var one sync.Mutex

// New installs an outbox.
func New(t *testing.T, db *testdb.DB) *Outbox {
	t.Helper()
	o := &Outbox{Assertions: require.New(t), T: t, DB: db}
	o.NoError(outbox.Migrate(t.Context(), db.DB, outbox.MigrateConfig{Dialect: Dialect(db.Name), Schema: db.Schema}))
	var err error
	o.Outbox, err = outbox.New(db.DB, outbox.Config{Dialect: Dialect(db.Name), Schema: db.Schema}, nil)
	o.NoError(err)
	return o
}

// Subscriber configures one that looks often and tries again soon.
func (o *Outbox) Subscriber() outbox.SubscriberConfig {
	return outbox.SubscriberConfig{
		Dialect: Dialect(o.DB.Name), Schema: o.DB.Schema, PollInterval: time.Millisecond, MaxPollInterval: 4 * o.tick(),
		Backoff: func(int) time.Duration { return time.Millisecond }, DrainTimeout: time.Second, UnhandledAfter: -1, HandlerLog: outbox.LogOff,
		AllowCompeting: true,
	}
}

// Enqueue adds n messages with the UUIDs from, from + 1 …
func (o *Outbox) Enqueue(topic string, from, n int) {
	o.T.Helper()
	const batch = 1000
	for ; n > 0; from, n = from+batch, n-batch {
		list := make([]outbox.Message, min(n, batch))
		for i := range list {
			list[i] = outbox.Message{UUID: fmt.Sprint(from + i), Topic: topic, Payload: fmt.Appendf(nil, "payload %d", from+i)}
		}
		_, err := o.Outbox.Enqueue(o.T.Context(), o.DB.DB, list...)
		o.NoError(err)
	}
}

// The queries of the helpers below, which SQL completes.
var (
	//go:embed rows.sql
	rowsSQL string
	//go:embed count.sql
	countSQL string
	//go:embed attempts.sql
	attemptsSQL string
)

// A Row is what the table says of a message.
type Row struct {
	UUID       string
	Status     outbox.Status
	RetryCount int
	LastError  string
}

// Rows are all, in the order in which they were published.
func (o *Outbox) Rows() (rows []Row) {
	o.T.Helper()
	result, err := o.DB.QueryContext(o.T.Context(), o.SQL("%s", rowsSQL))
	o.NoError(err)
	defer func() { o.NoError(result.Close()) }()
	for result.Next() {
		var r Row
		o.NoError(result.Scan(&r.UUID, &r.Status, &r.RetryCount, &r.LastError))
		rows = append(rows, r)
	}
	o.NoError(result.Err())
	return rows
}

// Count is how many have a status.
func (o *Outbox) Count(status outbox.Status) int {
	return o.Number(countSQL, status)
}

// Number returns the single number that a query selects.
func (o *Outbox) Number(query string, args ...any) (n int) {
	o.T.Helper()
	o.NoError(o.DB.QueryRowContext(o.T.Context(), o.SQL(query, args...)).Scan(&n))
	return n
}

// Attempts is the most attempts that a message has spent.
func (o *Outbox) Attempts() int {
	return o.Number("%s", attemptsSQL)
}

// Becomes waits until so many messages have a status.
func (o *Outbox) Becomes(status outbox.Status, n int) {
	o.T.Helper()
	o.Eventually(func() bool { return o.Count(status) == n }, Patience, o.tick(), "there are never %d messages %v", n, status)
}

// tick is how often a test looks.
func (o *Outbox) tick() time.Duration {
	if o.DB.Name == testdb.SQLServer {
		return 50 * time.Millisecond
	}
	return 5 * time.Millisecond
}

// Exec runs a statement.
func (o *Outbox) Exec(query string, args ...any) {
	o.T.Helper()
	_, err := o.DB.ExecContext(o.T.Context(), o.SQL(query, args...))
	o.NoError(err)
}

// SQL writes a statement for the database, with the meaning of Names for names in braces.
func (o *Outbox) SQL(text string, args ...any) string {
	return testdb.Expand(fmt.Sprintf(text, args...), o.names().Of)
}

// Table is the full name of a table.
func (o *Outbox) Table(name string) string { return o.names().Object(name) }

func (o *Outbox) names() Names { return Names{Backend: o.DB.Name, Schema: o.DB.Schema} }
