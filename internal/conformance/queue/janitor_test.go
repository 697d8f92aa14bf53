package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/join"
)

func TestJanitor_DeadLettersOfAQueueWithoutAnInbox(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Retained()
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = 3")
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
		f.ExecStates("UPDATE {outbox_state} SET {status} = 2, {processed_at} = {past}")
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

// What is old and must be kept is not looked at in each round: it would cost more and more.
func TestTrap_AJanitorBesideMuchThatIsKept(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const kept = 2500
		c := f.Joins()
		open := f.Start(c, join.StartParams{ExpectedSteps: 1 << 20})
		for range kept / 500 {
			f.AddSteps(c, open, "steps", 500)
			f.Empty(f.Settle(suite.Settled(outbox.Ack, f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("steps"), Limit: 500})...)...))
		}
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past}")
		var all, later atomic.Int64 // batches from the beginning, and from where a round may end
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			arg := fmt.Sprint(s.Args...)
			switch {
			case !strings.Contains(arg, `"status":2`) || strings.Contains(s.Text, "rest AS"): // another purge, or a part of this one
			case !strings.Contains(arg, `"after"`):
				all.Add(1)
			default:
				later.Add(1)
			}
			return nil
		}})
		ctx, stop := context.WithCancel(f.Context())
		var working sync.WaitGroup
		working.Go(func() {
			if err := f.NewOutbox(pool).RunJanitor(ctx, outbox.JanitorConfig{Done: time.Minute, Interval: time.Millisecond}); err != nil {
				t.Errorf("the janitor: %v", err)
			}
		})
		f.Eventually(func() bool { return later.Load() > 20 }, suite.Patience, time.Millisecond)
		stop()
		working.Wait()
		f.LessOrEqual(all.Load(), int64(2), "rounds from the beginning")
		f.Equal(kept, f.Count())
	})
}

// Each batch of dead letters begins where the one before ended, and not again with all that are kept.
func TestTrap_PurgingDeadLettersBehindManyThatAreKept(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const kept, dead = 10, 2500
		c := f.Joins()
		f.AddSteps(c, f.Start(c, join.StartParams{ExpectedSteps: 1 << 20}), "steps", kept)
		f.EnqueueN("orders", dead)
		for _, topic := range []string{"steps", "orders"} {
			for held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: 500}); len(held) > 0; {
				f.Empty(f.Settle(suite.Settled(outbox.Fail, held...)...))
				held = f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: 500})
			}
		}
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {topic} = 'steps')")
		batches := map[string]bool{} // from the beginning, and from where one has ended
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if arg := fmt.Sprint(s.Args...); strings.Contains(arg, `"status":3`) {
				batches[arg] = strings.Contains(arg, `"after":`)
			}
			return nil
		}})
		n, err := f.NewOutbox(pool).Purge(f.Context(), outbox.PurgeParams{Failed: true})
		f.NoError(err)
		f.Equal(dead, n)
		f.Equal(kept, f.Count())
		beginnings := 0
		for _, continues := range batches {
			if !continues {
				beginnings++
			}
		}
		f.Equal(1, beginnings)
		f.Greater(len(batches), 2)
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
		}, suite.Patience, 20*time.Millisecond)
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
			f.Settle(suite.Settled(outbox.Ack, f.Claim("orders")...)...)
			stop := begin()
			f.Eventually(func() bool { return f.Count() == 0 }, suite.Patience, 20*time.Millisecond, name)
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
			f.RequireField(err, "SubscriberConfig.Janitor."+field)
		}
	})
}
