// Package suite is what the tests of the outbox have in common: a fixture for each database there is, which is an installed
// outbox in a schema of its own, SQL to look behind it, and a check of the invariants when a test ends.
//
// What a test needs of a server beyond plain SQL it asks for by name (Fixture.Needs). Where the server, asked by a probe, lacks it,
// the test is skipped, and the run ends with the list of what did not run and why.
package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A Fixture is an outbox in a schema of its own, for one test on one database.
type Fixture struct {
	*require.Assertions
	T      *testing.T
	DB     *testdb.DB
	Config outbox.Config
	Outbox *outbox.Outbox

	WithoutJoins, WithInbox bool // of what migrate installs
}

// ForEach runs a test on every database, on an installed outbox, and checks the invariants when it ends.
func ForEach(t *testing.T, test func(t *testing.T, f *Fixture)) {
	t.Helper()
	ForEachEmpty(t, func(t *testing.T, f *Fixture) {
		f.Migrate()
		test(t, f)
	})
}

// Each are ForEach and ForEachEmpty for the fixture of a package, which embeds the suite's.
func Each[F any](embed func(*Fixture) F) (forEach, forEachEmpty func(t *testing.T, test func(t *testing.T, f F))) {
	of := func(each func(*testing.T, func(*testing.T, *Fixture))) func(*testing.T, func(*testing.T, F)) {
		return func(t *testing.T, test func(t *testing.T, f F)) {
			t.Helper()
			each(t, func(t *testing.T, f *Fixture) { test(t, embed(f)) })
		}
	}
	return of(ForEach), of(ForEachEmpty)
}

// ForEachEmpty does the same with nothing installed.
func ForEachEmpty(t *testing.T, test func(t *testing.T, f *Fixture)) {
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

// New is an outbox in a schema, with nothing installed. An empty table is the default one.
func New(t *testing.T, db *testdb.DB, table string) *Fixture {
	t.Helper()
	f := &Fixture{
		Assertions: require.New(t), T: t, DB: db,
		Config: outbox.Config{Dialect: testoutbox.Dialect(db.Name), Schema: db.Schema, Table: table,
			ExpiryBackoff: func(int) time.Duration { return 0 }}, // most tests expire leases by hand
	}
	f.Outbox = f.NewOutbox(db.DB)
	t.Cleanup(f.CheckInvariants)
	return f
}

// On is the same outbox over another pool, or in the schema of another database.
func (f *Fixture) On(db *testdb.DB) *Fixture {
	f.T.Helper()
	g := &Fixture{Assertions: f.Assertions, T: f.T, DB: db, Config: f.Config}
	g.Config.Schema = db.Schema
	g.Outbox = g.NewOutbox(db.DB)
	return g
}

// NewOutbox returns the same outbox over another pool, changed by options.
func (f *Fixture) NewOutbox(db *sql.DB, options ...func(*outbox.Config)) *outbox.Outbox {
	f.T.Helper()
	config := f.Config
	for _, option := range options {
		option(&config)
	}
	o, err := outbox.New(db, config, nil)
	f.NoError(err)
	return o
}

// MigrateConfig is what Migrate installs.
func (f *Fixture) MigrateConfig() outbox.MigrateConfig {
	return outbox.MigrateConfig{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table, WithoutJoins: f.WithoutJoins, WithInbox: f.WithInbox,
	}
}

// Migrate installs the outbox.
func (f *Fixture) Migrate() {
	f.T.Helper()
	f.NoError(outbox.Migrate(f.Context(), f.DB.DB, f.MigrateConfig()))
}

// Context is the test's.
func (f *Fixture) Context() context.Context { return f.T.Context() }

// Publisher returns a publisher on x.
func (f *Fixture) Publisher(x outbox.Executor, options ...func(*outbox.PublisherConfig)) *outbox.Publisher {
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
func (f *Fixture) Enqueue(messages ...outbox.Message) []outbox.MessageID {
	f.T.Helper()
	ids, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, messages...)
	f.NoError(err)
	f.Len(ids, len(messages))
	return ids
}

// EnqueueN inserts n small messages on a topic.
func (f *Fixture) EnqueueN(topic string, n int) []outbox.MessageID {
	f.T.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{UUID: fmt.Sprint(i), Topic: topic, Payload: fmt.Appendf(nil, "payload %d", i)}
	}
	return f.Enqueue(messages...)
}

// Claim takes all there is of the topics, up to 100, under a lease of a minute.
func (f *Fixture) Claim(topics ...string) []outbox.Claimed {
	f.T.Helper()
	return f.ClaimWith(outbox.ClaimParams{Topics: Quotas(topics...), Lease: time.Minute})
}

// ClaimWith claims what params say.
func (f *Fixture) ClaimWith(params outbox.ClaimParams) []outbox.Claimed {
	f.T.Helper()
	claimed, err := f.Outbox.Claim(f.Context(), params)
	f.NoError(err)
	return claimed
}

// ClaimOne enqueues one message on a topic and claims it.
func (f *Fixture) ClaimOne(topic string) outbox.Claimed {
	f.T.Helper()
	f.EnqueueN(topic, 1)
	claimed := f.Claim(topic)
	f.Len(claimed, 1)
	return claimed[0]
}

// Quotas are topics without a limit of their own.
func Quotas(topics ...string) []outbox.TopicQuota {
	var list []outbox.TopicQuota
	for _, topic := range topics {
		list = append(list, outbox.TopicQuota{Topic: topic})
	}
	return list
}

// Settle settles on the pool and returns the refused.
func (f *Fixture) Settle(settlements ...outbox.Settlement) []outbox.WorkItemID {
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

// Seqs are the work items of some claims.
func Seqs(claimed []outbox.Claimed) []outbox.WorkItemID {
	ids := make([]outbox.WorkItemID, 0, len(claimed))
	for _, c := range claimed {
		ids = append(ids, c.Receipt.Seq)
	}
	return ids
}

// MessageIDs are the ids of the messages of some claims.
func MessageIDs(claimed []outbox.Claimed) []outbox.MessageID {
	ids := make([]outbox.MessageID, 0, len(claimed))
	for _, c := range claimed {
		ids = append(ids, c.ID)
	}
	return ids
}

// RequireField asserts that err names the field as what is wrong.
func (f *Fixture) RequireField(err error, field string) {
	f.T.Helper()
	var e *outbox.FieldError
	f.ErrorAs(err, &e)
	f.Equal(field, e.Field)
	f.NotEmpty(e.Reason)
}

// SameTime asserts that a time was stored to the millisecond, give or take how a server rounds.
func (f *Fixture) SameTime(want, got time.Time) {
	f.T.Helper()
	f.WithinDuration(want, got, 4*time.Millisecond)
}

// Between asserts that got lies between two moments, give or take the same.
func (f *Fixture) Between(from, to, got time.Time) {
	f.T.Helper()
	const rounding = 4 * time.Millisecond
	f.False(got.Before(from.Add(-rounding)) || got.After(to.Add(rounding)), "%v is not between %v and %v", got, from, to)
}

// PurgeOnce is one round of a janitor: how much it has purged, by part.
func (f *Fixture) PurgeOnce(config outbox.JanitorConfig) map[string]int {
	f.T.Helper()
	purged, err := f.Outbox.PurgeOnce(f.Context(), config)
	f.NoError(err)
	return purged
}

// The longest allowed text, in UTF-16 units: of plain characters, and of such that count twice.
var (
	LongestPlain  = strings.Repeat("ü", 255)
	LongestDouble = strings.Repeat("🙂", 127) + "x"
	TooLong       = []string{LongestPlain + "x", strings.Repeat("🙂", 128)}
)

// ErrBoom is what handlers fail with.
var ErrBoom = errors.New("boom: the handler could not")
