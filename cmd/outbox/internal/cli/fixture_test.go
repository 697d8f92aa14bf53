package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A fixture runs command lines against an outbox of its own.
type fixture struct {
	*testoutbox.Outbox
	streams Streams
	dsn     string // defaults to that of the outbox
}

func newFixture(o *testoutbox.Outbox) *fixture { return &fixture{Outbox: o} }

func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) { test(t, newFixture(o)) })
}

// onSQLite runs a test that would show nothing else on another database.
func onSQLite(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	on(t, testdb.SQLite, test)
}

func on(t *testing.T, name string, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	for _, backend := range testdb.Backends(t) {
		if backend.Name == name {
			test(t, newFixture(testoutbox.New(t, backend.Open(t))))
		}
	}
}

func (f *fixture) run(args ...string) (code int, out, errOut string) {
	return f.runIn(f.T.Context(), args...)
}

func (f *fixture) runIn(ctx context.Context, args ...string) (code int, out, errOut string) {
	f.T.Helper()
	return runStreams(ctx, f.streams, f.complete(args)...)
}

// complete adds the database to a command line.
func (f *fixture) complete(args []string) []string {
	args = append(slices.Clip(args), "--dsn", cmp.Or(f.dsn, f.DB.DSN))
	if f.DB.Schema != "" {
		args = append(args, "--schema", f.DB.Schema)
	}
	return args
}

func runStreams(ctx context.Context, streams Streams, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	if streams.In == nil {
		streams.In = strings.NewReader("")
	}
	if streams.Out == nil {
		streams.Out = &o
	}
	streams.Err = &e
	code = Run(ctx, args, streams)
	return code, o.String(), e.String()
}

// ok runs a command line that finds no trouble.
func (f *fixture) ok(args ...string) string {
	f.T.Helper()
	code, out, errOut := f.run(args...)
	f.Equal(exitOK, code, "%s\n%s", out, errOut)
	return out
}

func (f *fixture) admin() *admin.Admin {
	f.T.Helper()
	a, err := admin.New(f.Outbox.Outbox)
	f.NoError(err)
	return a
}

// passes waits until the database's clock is past what it was.
func (f *fixture) passes() {
	f.T.Helper()
	begun, err := f.admin().Health(f.T.Context())
	f.NoError(err)
	f.Eventually(func() bool {
		h, err := f.admin().Health(f.T.Context())
		return err == nil && h.Now.After(begun.Now.Add(2*time.Millisecond))
	}, testoutbox.Patience, time.Millisecond)
}

func (f *fixture) claim(topic string, limit int, lease time.Duration) []outbox.Claimed {
	f.T.Helper()
	claimed, err := f.Claim(f.T.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}, Limit: limit, Lease: lease, GiveBack: -1})
	f.NoError(err)
	return claimed
}

// fail has everything that is due on a topic fail for good, and returns the ids.
func (f *fixture) fail(topic, reason string) (ids []outbox.MessageID) {
	f.T.Helper()
	for {
		some := f.failSome(topic, 1000, reason)
		if len(some) == 0 {
			return ids
		}
		ids = append(ids, some...)
	}
}

// failSome does the same with up to limit messages.
func (f *fixture) failSome(topic string, limit int, reason string) (ids []outbox.MessageID) {
	f.T.Helper()
	var settlements []outbox.Settlement
	for _, c := range f.claim(topic, limit, time.Minute) {
		ids = append(ids, c.ID)
		settlements = append(settlements, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Fail, Err: errors.New(reason)})
	}
	_, err := f.Settle(f.T.Context(), f.DB.DB, settlements)
	f.NoError(err)
	return ids
}

func (f *fixture) publish(m outbox.Message) outbox.MessageID {
	f.T.Helper()
	ids, err := f.Outbox.Outbox.Enqueue(f.T.Context(), f.DB.DB, m)
	f.NoError(err)
	return ids[0]
}
