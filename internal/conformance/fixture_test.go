package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// A fixture is an outbox in a schema of its own, for one test on one database.
type fixture struct {
	*require.Assertions
	T      *testing.T
	DB     *testdb.DB
	Config outbox.Config
	Outbox *outbox.Outbox

	WithoutJoins, WithInbox bool // of what migrate installs
}

// forEach runs a test on every database, on an installed outbox, and checks the invariants when it ends.
func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Migrate()
		test(t, f)
	})
}

// forEachEmpty does the same with nothing installed.
func forEachEmpty(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	for _, backend := range testdb.Backends(t) {
		t.Run(backend.Name, func(t *testing.T) {
			t.Parallel()
			f := New(t, backend.Open(t), "")
			test(t, f)
		})
	}
}

func New(t *testing.T, db *testdb.DB, table string) *fixture {
	t.Helper()
	f := &fixture{
		Assertions: require.New(t), T: t, DB: db,
		Config: outbox.Config{Dialect: Dialect(db.Name), Schema: db.Schema, Table: table,
			ExpiryBackoff: func(int) time.Duration { return 0 }}, // most tests expire leases by hand
	}
	f.Outbox = f.NewOutbox(db.DB)
	t.Cleanup(f.CheckInvariants)
	return f
}

func Dialect(backend string) outbox.Dialect {
	switch backend {
	case testdb.Postgres:
		return outbox.Postgres{}
	case testdb.SQLServer:
		return outbox.SQLServer{}
	default:
		return outbox.SQLite{}
	}
}

// NewOutbox returns the same outbox over another pool, changed by options.
func (f *fixture) NewOutbox(db *sql.DB, options ...func(*outbox.Config)) *outbox.Outbox {
	f.T.Helper()
	config := f.Config
	for _, option := range options {
		option(&config)
	}
	o, err := outbox.New(db, config, nil)
	f.NoError(err)
	return o
}

func (f *fixture) MigrateConfig() outbox.MigrateConfig {
	return outbox.MigrateConfig{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table, WithoutJoins: f.WithoutJoins, WithInbox: f.WithInbox,
	}
}

func (f *fixture) Migrate() {
	f.T.Helper()
	f.NoError(outbox.Migrate(f.Context(), f.DB.DB, f.MigrateConfig()))
}

func (f *fixture) Context() context.Context { return f.T.Context() }

// Publisher returns a publisher on x.
func (f *fixture) Publisher(x outbox.Executor, options ...func(*outbox.PublisherConfig)) *outbox.Publisher {
	f.T.Helper()
	config := outbox.PublisherConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}
	for _, option := range options {
		option(&config)
	}
	p, err := outbox.NewPublisher(x, config, nil)
	f.NoError(err)
	return p
}

// Enqueue inserts messages in a transaction of their own.
func (f *fixture) Enqueue(messages ...outbox.Message) []outbox.MessageID {
	f.T.Helper()
	ids, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, messages...)
	f.NoError(err)
	f.Len(ids, len(messages))
	return ids
}

// EnqueueN inserts n small messages on a topic.
func (f *fixture) EnqueueN(topic string, n int) []outbox.MessageID {
	f.T.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{UUID: fmt.Sprint(i), Topic: topic, Payload: fmt.Appendf(nil, "payload %d", i)}
	}
	return f.Enqueue(messages...)
}

// Claim takes all there is of the topics, up to 100, under a lease of a minute.
func (f *fixture) Claim(topics ...string) []outbox.Claimed {
	f.T.Helper()
	return f.ClaimWith(outbox.ClaimParams{Topics: Quotas(topics...), Lease: time.Minute})
}

func (f *fixture) ClaimWith(params outbox.ClaimParams) []outbox.Claimed {
	f.T.Helper()
	claimed, err := f.Outbox.Claim(f.Context(), params)
	f.NoError(err)
	return claimed
}

// ClaimOne enqueues one message on a topic and claims it.
func (f *fixture) ClaimOne(topic string) outbox.Claimed {
	f.T.Helper()
	f.EnqueueN(topic, 1)
	claimed := f.Claim(topic)
	f.Len(claimed, 1)
	return claimed[0]
}

func Quotas(topics ...string) []outbox.TopicQuota {
	var list []outbox.TopicQuota
	for _, topic := range topics {
		list = append(list, outbox.TopicQuota{Topic: topic})
	}
	return list
}

// Settle settles on the pool and returns the refused.
func (f *fixture) Settle(settlements ...outbox.Settlement) []outbox.WorkItemID {
	f.T.Helper()
	refused, err := f.Outbox.Settle(f.Context(), f.DB.DB, settlements)
	f.NoError(err)
	return refused
}

// Settled makes the settlements of some claims with one outcome.
func Settled(outcome outbox.Outcome, claimed ...outbox.Claimed) []outbox.Settlement {
	var settlements []outbox.Settlement
	for _, c := range claimed {
		settlements = append(settlements, outbox.Settlement{Receipt: c.Receipt, Outcome: outcome})
	}
	return settlements
}

func Seqs(claimed []outbox.Claimed) []outbox.WorkItemID {
	ids := make([]outbox.WorkItemID, 0, len(claimed))
	for _, c := range claimed {
		ids = append(ids, c.Receipt.Seq)
	}
	return ids
}

func MessageIDs(claimed []outbox.Claimed) []outbox.MessageID {
	ids := make([]outbox.MessageID, 0, len(claimed))
	for _, c := range claimed {
		ids = append(ids, c.ID)
	}
	return ids
}

// RequireField asserts that err names the field as what is wrong.
func (f *fixture) RequireField(err error, field string) {
	f.T.Helper()
	var e *outbox.FieldError
	f.ErrorAs(err, &e)
	f.Equal(field, e.Field)
	f.NotEmpty(e.Reason)
}

// SameTime asserts that a time was stored to the millisecond, give or take how a server rounds.
func (f *fixture) SameTime(want, got time.Time) {
	f.T.Helper()
	f.WithinDuration(want, got, 4*time.Millisecond)
}

// Between asserts that got lies between two moments, give or take the same.
func (f *fixture) Between(from, to, got time.Time) {
	f.T.Helper()
	const rounding = 4 * time.Millisecond
	f.False(got.Before(from.Add(-rounding)) || got.After(to.Add(rounding)), "%v is not between %v and %v", got, from, to)
}
