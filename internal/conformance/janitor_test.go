package conformance

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

func (f *fixture) PurgeOnce(config outbox.JanitorConfig) map[string]int {
	f.T.Helper()
	purged, err := f.Outbox.PurgeOnce(f.Context(), config)
	f.NoError(err)
	return purged
}

// ended leaves something of everything that a janitor purges, all of an hour ago, and something that lives of each.
func (f *inboxFixture) ended() {
	f.T.Helper()
	config := f.InboxConfig("")
	config.WithJoins = true
	f.NoError(inbox.Migrate(f.Context(), f.DB.DB, config))
	c := f.Joins()
	f.StartWith(c, "steps of one that is pending", 1)
	over := f.Start(c, join.StartParams{Open: true})
	f.NoError(c.Seal(f.Context(), nil, over))
	f.Backdate(over)

	f.Received("done", "failed", "ready")
	claimed := f.ClaimWith(outbox.ClaimParams{Topics: Quotas("ship"), Limit: 2})
	f.Settle(Settled(outbox.Ack, claimed[0])...)
	f.Settle(Settled(outbox.Fail, claimed[1])...)
	f.NoError(f.InTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "at once"); return err }))
	f.Exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")

	f.EnqueueLogged(f.LogOutbox(), "logged", "1", "2", "3")
	f.EnqueueN("by itself", 1)
	f.Settle(Settled(outbox.Ack, f.Claim("by itself")...)...)
	s, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}, nil)
	f.NoError(err)
	_, err = seam.Sequencer(s).Stamp(f.Context())
	f.NoError(err)
	cursor, err := seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{Group: "slow", Topic: "logged"})
	f.NoError(err)
	_, err = cursor.Acquire(f.Context())
	f.NoError(err)
	f.NoError(cursor.Advance(f.Context(), f.DB.DB, 0, 2))
	f.Exec("UPDATE %s SET {logged_at} = {past}", f.LogTable(""))
	f.Exec("UPDATE {outbox} SET {created_at} = {past}")
	f.Exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} IN (2, 3)")
}

func TestJanitor_EachPartHasARetention(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.ended()
		f.Empty(f.PurgeOnce(outbox.JanitorConfig{}), "all is younger than 7 days")
		const old = 30 * time.Minute
		f.Empty(f.PurgeOnce(outbox.JanitorConfig{
			Done: -1, Failed: -1, Log: -1, Joins: -1, Entries: -1}))
		f.Equal(map[string]int{"log": 2}, f.PurgeOnce(outbox.JanitorConfig{Log: old}), "the group has not passed the third")
		f.Equal(map[string]int{"joins": 1}, f.PurgeOnce(outbox.JanitorConfig{Joins: old}))
		f.Equal(map[string]int{"entries": 2}, f.PurgeOnce(outbox.JanitorConfig{Entries: old}))
		f.Equal(map[string]int{"messages": 1}, f.PurgeOnce(outbox.JanitorConfig{Done: old}))
		f.Equal(map[string]int{"failed entries": 1}, f.PurgeOnce(outbox.JanitorConfig{Failed: old}))
		f.Equal(1, f.CountEntries())
		f.Equal(3, f.Count(), "one is ready, one a step of a pending join, one not read yet")

		boom := errors.New("boom")
		purged, err := f.Outbox.PurgeOnce(f.Context(), outbox.JanitorConfig{Also: map[string]func(context.Context) (int, error){
			"sessions": func(context.Context) (int, error) { return 7, boom }}})
		f.ErrorIs(err, boom)
		f.Equal(map[string]int{"sessions": 7}, purged)
	})
}

func TestJanitor_DeadLettersOfAQueueWithoutAnInbox(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Retained()
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.Exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = 3")
		f.Empty(f.PurgeOnce(outbox.JanitorConfig{Failed: 2 * time.Hour}))
		f.Equal(map[string]int{"failed messages": 1}, f.PurgeOnce(outbox.JanitorConfig{Failed: time.Minute}))
	})
}

func TestJanitor_WithoutJoins(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.WithoutJoins = true
		f.Migrate()
		f.Retained()
		f.Equal(map[string]int{"messages": 1}, f.PurgeOnce(outbox.JanitorConfig{Done: time.Minute, Joins: time.Minute}))
	})
}

func TestJanitor_ManyAtOnceDoTheWorkOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 2500
		f.EnqueueN("orders", n)
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.Exec("UPDATE {outbox_state} SET {status} = 2, {processed_at} = {past}")
		var purged atomic.Int64
		var working sync.WaitGroup
		for range 4 {
			working.Go(func() {
				done, err := f.Outbox.PurgeOnce(f.Context(), outbox.JanitorConfig{Done: time.Minute})
				if err != nil {
					t.Errorf("purge: %v", err)
				}
				purged.Add(int64(done["messages"]))
			})
		}
		working.Wait()
		f.EqualValues(n, purged.Load())
		f.Zero(f.Count())
	})
}

// With DeleteOnAck the done messages of the log stayed for ever, and so did joins that had ended: nothing purged them
// unless somebody called it.
func TestTrap_DeleteOnAckLeavesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		both := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Log = outbox.QueueAndLog })
		f.EnqueueLogged(both, "orders", "1", "2", "3")
		c := f.Joins()
		f.StartWith(c, "steps", 2)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.DeleteOnAck = true
			c.Janitor = outbox.JanitorConfig{Done: time.Millisecond, Log: time.Millisecond, Joins: time.Millisecond}
		})
		for topic, n := range map[string]int{"orders": 3, "steps": 2} {
			messages := f.Subscribe(s, topic)
			for range n {
				f.Receive(messages).Ack()
			}
		}
		f.Eventually(func() bool {
			return f.Count() == 0 && f.JoinCount() == 0 && f.Number("SELECT COUNT(*) FROM %s", f.LogTable("")) == 0
		}, Patience, 20*time.Millisecond)
	})
}

// A process that only reads the log, or only publishes, has a janitor too.
func TestJanitor_WhereThereIsNoQueue(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		config := outbox.JanitorConfig{Done: time.Millisecond}
		for name, begin := range map[string]func() (stop func()){
			"a reader of the log": func() func() {
				s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.ConsumerGroup, c.Janitor = "a group", config })
				f.Subscribe(s, "orders")
				return func() { f.NoError(s.Close()) }
			},
			"RunJanitor": func() func() {
				ctx, cancel := context.WithCancel(f.Context())
				stopped := make(chan error)
				go func() { stopped <- f.Outbox.RunJanitor(ctx, config) }()
				return func() {
					cancel()
					f.NoError(<-stopped)
				}
			},
		} {
			f.EnqueueN("orders", 1)
			f.Settle(Settled(outbox.Ack, f.Claim("orders")...)...)
			stop := begin()
			f.Eventually(func() bool { return f.Count() == 0 }, Patience, 20*time.Millisecond, name)
			stop()
		}
		f.NoError(f.Outbox.RunJanitor(f.Context(), outbox.JanitorConfig{Disabled: true}), "returns at once")
	})
}

func TestJanitorRefusesWhatMakesNoSense(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for field, config := range map[string]outbox.JanitorConfig{
			"Done": {Done: -2}, "Failed": {Failed: -2}, "Log": {Log: -2}, "Joins": {Joins: -2}, "Entries": {Entries: -2},
			"Interval": {Interval: -1}, "Also": {Also: map[string]func(context.Context) (int, error){"nothing": nil}},
		} {
			_, err := f.Outbox.PurgeOnce(f.Context(), config)
			f.RequireField(err, "JanitorConfig."+field)
			_, err = outbox.NewSubscriber(f.DB.DB, outbox.SubscriberConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Janitor: config}, nil)
			f.RequireField(err, "JanitorConfig."+field)
		}
	})
}
