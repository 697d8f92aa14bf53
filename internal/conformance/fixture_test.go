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
	t      *testing.T
	db     *testdb.DB
	config outbox.Config
	outbox *outbox.Outbox

	withoutJoins, withInbox bool // of what migrate installs
}

// forEach runs a test on every database, on an installed outbox, and checks the invariants when it ends.
func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.migrate()
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
			f := newFixture(t, backend.Open(t), "")
			test(t, f)
		})
	}
}

func newFixture(t *testing.T, db *testdb.DB, table string) *fixture {
	t.Helper()
	f := &fixture{
		Assertions: require.New(t), t: t, db: db,
		config: outbox.Config{Dialect: dialect(db.Name), Schema: db.Schema, Table: table,
			ExpiryBackoff: func(int) time.Duration { return 0 }}, // most tests expire leases by hand
	}
	f.outbox = f.newOutbox(db.DB)
	t.Cleanup(f.checkInvariants)
	return f
}

func dialect(backend string) outbox.Dialect {
	switch backend {
	case testdb.Postgres:
		return outbox.Postgres{}
	case testdb.SQLServer:
		return outbox.SQLServer{}
	default:
		return outbox.SQLite{}
	}
}

// newOutbox returns the same outbox over another pool, changed by options.
func (f *fixture) newOutbox(db *sql.DB, options ...func(*outbox.Config)) *outbox.Outbox {
	f.t.Helper()
	config := f.config
	for _, option := range options {
		option(&config)
	}
	o, err := outbox.New(db, config, nil)
	f.NoError(err)
	return o
}

func (f *fixture) migrateConfig() outbox.MigrateConfig {
	return outbox.MigrateConfig{
		Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table, WithoutJoins: f.withoutJoins, WithInbox: f.withInbox,
	}
}

func (f *fixture) migrate() {
	f.t.Helper()
	f.NoError(outbox.Migrate(f.ctx(), f.db.DB, f.migrateConfig()))
}

func (f *fixture) ctx() context.Context { return f.t.Context() }

// publisher returns a publisher on x.
func (f *fixture) publisher(x outbox.Executor, options ...func(*outbox.PublisherConfig)) *outbox.Publisher {
	f.t.Helper()
	config := outbox.PublisherConfig{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table}
	for _, option := range options {
		option(&config)
	}
	p, err := outbox.NewPublisher(x, config, nil)
	f.NoError(err)
	return p
}

// enqueue inserts messages in a transaction of their own.
func (f *fixture) enqueue(messages ...outbox.Message) []outbox.MessageID {
	f.t.Helper()
	ids, err := f.outbox.Enqueue(f.ctx(), f.db.DB, messages...)
	f.NoError(err)
	f.Len(ids, len(messages))
	return ids
}

// enqueueN inserts n small messages on a topic.
func (f *fixture) enqueueN(topic string, n int) []outbox.MessageID {
	f.t.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{UUID: fmt.Sprint(i), Topic: topic, Payload: fmt.Appendf(nil, "payload %d", i)}
	}
	return f.enqueue(messages...)
}

// claim takes all there is of the topics, up to 100, under a lease of a minute.
func (f *fixture) claim(topics ...string) []outbox.Claimed {
	f.t.Helper()
	return f.claimWith(outbox.ClaimParams{Topics: quotas(topics...), Lease: time.Minute})
}

func (f *fixture) claimWith(params outbox.ClaimParams) []outbox.Claimed {
	f.t.Helper()
	claimed, err := f.outbox.Claim(f.ctx(), params)
	f.NoError(err)
	return claimed
}

// claimOne enqueues one message on a topic and claims it.
func (f *fixture) claimOne(topic string) outbox.Claimed {
	f.t.Helper()
	f.enqueueN(topic, 1)
	claimed := f.claim(topic)
	f.Len(claimed, 1)
	return claimed[0]
}

func quotas(topics ...string) []outbox.TopicQuota {
	var list []outbox.TopicQuota
	for _, topic := range topics {
		list = append(list, outbox.TopicQuota{Topic: topic})
	}
	return list
}

// settle settles on the pool and returns the refused.
func (f *fixture) settle(settlements ...outbox.Settlement) []outbox.WorkItemID {
	f.t.Helper()
	refused, err := f.outbox.Settle(f.ctx(), f.db.DB, settlements)
	f.NoError(err)
	return refused
}

// settled makes the settlements of some claims with one outcome.
func settled(outcome outbox.Outcome, claimed ...outbox.Claimed) []outbox.Settlement {
	var settlements []outbox.Settlement
	for _, c := range claimed {
		settlements = append(settlements, outbox.Settlement{Receipt: c.Receipt, Outcome: outcome})
	}
	return settlements
}

func seqs(claimed []outbox.Claimed) []outbox.WorkItemID {
	ids := make([]outbox.WorkItemID, 0, len(claimed))
	for _, c := range claimed {
		ids = append(ids, c.Receipt.Seq)
	}
	return ids
}

func messageIDs(claimed []outbox.Claimed) []outbox.MessageID {
	ids := make([]outbox.MessageID, 0, len(claimed))
	for _, c := range claimed {
		ids = append(ids, c.ID)
	}
	return ids
}

// requireField asserts that err names the field as what is wrong.
func (f *fixture) requireField(err error, field string) {
	f.t.Helper()
	var e *outbox.FieldError
	f.ErrorAs(err, &e)
	f.Equal(field, e.Field)
	f.NotEmpty(e.Reason)
}

// sameTime asserts that a time was stored to the millisecond, give or take how a server rounds.
func (f *fixture) sameTime(want, got time.Time) {
	f.t.Helper()
	f.WithinDuration(want, got, 4*time.Millisecond)
}

// between asserts that got lies between two moments, give or take the same.
func (f *fixture) between(from, to, got time.Time) {
	f.t.Helper()
	const rounding = 4 * time.Millisecond
	f.False(got.Before(from.Add(-rounding)) || got.After(to.Add(rounding)), "%v is not between %v and %v", got, from, to)
}
