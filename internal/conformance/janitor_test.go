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

func (f *fixture) round(config outbox.JanitorConfig) map[string]int {
	f.t.Helper()
	purged, err := f.outbox.PurgeOnce(f.ctx(), config)
	f.NoError(err)
	return purged
}

// ended leaves something of everything that a janitor purges, all of an hour ago, and something that lives of each.
func (f *inboxFixture) ended() {
	f.t.Helper()
	config := f.inboxConfig("")
	config.WithJoins = true
	f.NoError(inbox.Migrate(f.ctx(), f.db.DB, config))
	c := f.joins()
	f.startWith(c, "steps of one that is pending", 1)
	over := f.start(c, join.StartParams{Open: true})
	f.NoError(c.Seal(f.ctx(), nil, over))
	f.backdate(over)

	f.received("done", "failed", "ready")
	claimed := f.claimWith(outbox.ClaimParams{Topics: quotas("ship"), Limit: 2})
	f.settle(settled(outbox.Ack, claimed[0])...)
	f.settle(settled(outbox.Fail, claimed[1])...)
	f.NoError(f.inTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "at once"); return err }))
	f.exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")

	f.enqueueLogged(f.logOutbox(), "logged", "1", "2", "3")
	f.enqueueN("by itself", 1)
	f.settle(settled(outbox.Ack, f.claim("by itself")...)...)
	s, err := outbox.NewSequencer(f.db.DB, outbox.SequencerConfig{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table}, nil)
	f.NoError(err)
	_, err = seam.Sequencer(s).Stamp(f.ctx())
	f.NoError(err)
	cursor, err := seam.NewCursor[outbox.LogMessage](f.outbox, seam.CursorConfig{Group: "slow", Topic: "logged"})
	f.NoError(err)
	_, err = cursor.Acquire(f.ctx())
	f.NoError(err)
	f.NoError(cursor.Advance(f.ctx(), f.db.DB, 0, 2))
	f.exec("UPDATE %s SET {logged_at} = {past}", f.logTable(""))
	f.exec("UPDATE {outbox} SET {created_at} = {past}")
	f.exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} IN (2, 3)")
}

func TestJanitor_EachPartHasARetention(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.ended()
		f.Empty(f.round(outbox.JanitorConfig{}), "all is younger than 7 days")
		const old = 30 * time.Minute
		f.Empty(f.round(outbox.JanitorConfig{
			Done: -1, Failed: -1, Log: -1, Joins: -1, Entries: -1}))
		f.Equal(map[string]int{"log": 2}, f.round(outbox.JanitorConfig{Log: old}), "the group has not passed the third")
		f.Equal(map[string]int{"joins": 1}, f.round(outbox.JanitorConfig{Joins: old}))
		f.Equal(map[string]int{"entries": 2}, f.round(outbox.JanitorConfig{Entries: old}))
		f.Equal(map[string]int{"messages": 1}, f.round(outbox.JanitorConfig{Done: old}))
		f.Equal(map[string]int{"failed entries": 1}, f.round(outbox.JanitorConfig{Failed: old}))
		f.Equal(1, f.countEntries())
		f.Equal(3, f.count(), "one is ready, one a step of a pending join, one not read yet")

		boom := errors.New("boom")
		purged, err := f.outbox.PurgeOnce(f.ctx(), outbox.JanitorConfig{Also: map[string]func(context.Context) (int, error){
			"sessions": func(context.Context) (int, error) { return 7, boom }}})
		f.ErrorIs(err, boom)
		f.Equal(map[string]int{"sessions": 7}, purged)
	})
}

func TestJanitor_DeadLettersOfAQueueWithoutAnInbox(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.retained()
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = 3")
		f.Empty(f.round(outbox.JanitorConfig{Failed: 2 * time.Hour}))
		f.Equal(map[string]int{"failed messages": 1}, f.round(outbox.JanitorConfig{Failed: time.Minute}))
	})
}

func TestJanitor_WithoutJoins(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.withoutJoins = true
		f.migrate()
		f.retained()
		f.Equal(map[string]int{"messages": 1}, f.round(outbox.JanitorConfig{Done: time.Minute, Joins: time.Minute}))
	})
}

func TestJanitor_ManyAtOnceDoTheWorkOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 2500
		f.enqueueN("orders", n)
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {status} = 2, {processed_at} = {past}")
		var purged atomic.Int64
		var working sync.WaitGroup
		for range 4 {
			working.Go(func() {
				done, err := f.outbox.PurgeOnce(f.ctx(), outbox.JanitorConfig{Done: time.Minute})
				if err != nil {
					t.Errorf("purge: %v", err)
				}
				purged.Add(int64(done["messages"]))
			})
		}
		working.Wait()
		f.EqualValues(n, purged.Load())
		f.Zero(f.count())
	})
}

// With DeleteOnAck the done messages of the log stayed for ever, and so did joins that had ended: nothing purged them
// unless somebody called it.
func TestTrap_DeleteOnAckLeavesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		both := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.Log = outbox.QueueAndLog })
		f.enqueueLogged(both, "orders", "1", "2", "3")
		c := f.joins()
		f.startWith(c, "steps", 2)
		s := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.DeleteOnAck = true
			c.Janitor = outbox.JanitorConfig{Done: time.Millisecond, Log: time.Millisecond, Joins: time.Millisecond}
		})
		for topic, n := range map[string]int{"orders": 3, "steps": 2} {
			messages := f.subscribe(s, topic)
			for range n {
				f.receive(messages).Ack()
			}
		}
		f.Eventually(func() bool {
			return f.count() == 0 && f.joinCount() == 0 && f.number("SELECT COUNT(*) FROM %s", f.logTable("")) == 0
		}, patience, 20*time.Millisecond)
	})
}

// A process that only reads the log, or only publishes, has a janitor too.
func TestJanitor_WhereThereIsNoQueue(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		config := outbox.JanitorConfig{Done: time.Millisecond}
		for name, begin := range map[string]func() (stop func()){
			"a reader of the log": func() func() {
				s := f.subscriber(func(c *outbox.SubscriberConfig) { c.ConsumerGroup, c.Janitor = "a group", config })
				f.subscribe(s, "orders")
				return func() { f.NoError(s.Close()) }
			},
			"RunJanitor": func() func() {
				ctx, cancel := context.WithCancel(f.ctx())
				stopped := make(chan error)
				go func() { stopped <- f.outbox.RunJanitor(ctx, config) }()
				return func() {
					cancel()
					f.NoError(<-stopped)
				}
			},
		} {
			f.enqueueN("orders", 1)
			f.settle(settled(outbox.Ack, f.claim("orders")...)...)
			stop := begin()
			f.Eventually(func() bool { return f.count() == 0 }, patience, 20*time.Millisecond, name)
			stop()
		}
		f.NoError(f.outbox.RunJanitor(f.ctx(), outbox.JanitorConfig{Disabled: true}), "returns at once")
	})
}

func TestJanitorRefusesWhatMakesNoSense(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for field, config := range map[string]outbox.JanitorConfig{
			"Done": {Done: -2}, "Failed": {Failed: -2}, "Log": {Log: -2}, "Joins": {Joins: -2}, "Entries": {Entries: -2},
			"Interval": {Interval: -1}, "Also": {Also: map[string]func(context.Context) (int, error){"nothing": nil}},
		} {
			_, err := f.outbox.PurgeOnce(f.ctx(), config)
			f.requireField(err, "JanitorConfig."+field)
			_, err = outbox.NewSubscriber(f.db.DB, outbox.SubscriberConfig{Dialect: f.config.Dialect, Schema: f.config.Schema, Janitor: config}, nil)
			f.requireField(err, "JanitorConfig."+field)
		}
	})
}
