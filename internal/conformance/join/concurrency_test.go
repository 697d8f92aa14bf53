package join_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/join"
)

// all runs n calls at once and returns their errors.
func all(n int, call func(i int) error) error {
	start := make(chan struct{})
	failures := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-start
			failures[i] = call(i)
		})
	}
	close(start)
	group.Wait()
	return errors.Join(failures...)
}

// Twenty workers end the steps of joins that share them, in calls of three, while others attach and report.
func TestJOIN060_061_ManyWorkersLoseNoCount(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const workers, each, joins = 20, 3, 4
		c := f.Joins()
		ids := f.EnqueueN("s", workers*each)
		var shared []join.ID
		for i := range joins {
			id := f.Start(c, join.StartParams{Open: true})
			f.NoError(c.Attach(f.Context(), nil, id, ids[i*10:]...)) // each another part
			shared = append(shared, id)
		}
		claimed := f.Claim("s")
		f.Len(claimed, workers*each)
		extra := f.EnqueueN("extra", workers)
		f.NoError(all(workers, func(worker int) error {
			mine := claimed[worker*each : (worker+1)*each]
			refused, err := f.Outbox.Settle(f.Context(), f.DB.DB, append(suite.Settled(outbox.Ack, mine[0], mine[1]), suite.Settled(outbox.Fail, mine[2])...))
			if err == nil && len(refused) > 0 {
				err = errors.New("refused")
			}
			target := shared[worker%joins]
			return errors.Join(err, c.Attach(f.Context(), nil, target, extra[worker]),
				c.ReportStepFailed(f.Context(), nil, target, extra[worker]),
				c.ReportStepCompleted(f.Context(), nil, shared[0], ids[worker])) // has ended, or ends here
		}))
		for i, id := range shared {
			r := f.JoinRow(id)
			f.Equal(workers*each-i*10+workers/joins, r.Completed+r.Failed)
			f.Equal(r.Attached, r.Members)
			f.NoError(c.Seal(f.Context(), nil, id))
			f.NotEqual(join.Pending, f.Join(c, id).Status)
		}
	})
}

// Whoever races for the last step, the join ends once, and whoever waits continues once.
func TestJOIN060_TheLastStepEndsTheJoinOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const rounds, steps = 5, 4
		var mu sync.Mutex
		ended := map[join.ID]int{}
		hooks := outbox.Hooks{OnJoinEnd: func(e outbox.JoinEvent) {
			mu.Lock()
			defer mu.Unlock()
			ended[e.ID]++
		}}
		o := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Hooks = hooks })
		c := f.Joins(func(c *join.Config) { c.Hooks = hooks })
		for range rounds {
			id, _ := f.StartWith(c, "s", steps)
			f.Wait(c, suite.Waits(id, "next", ""))
			claimed := f.Claim("s")
			f.NoError(all(steps, func(i int) error {
				_, err := o.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Ack, claimed[i]))
				return err
			}))
			f.Stands(c, id, join.Completed, steps, 0)
			mu.Lock()
			f.Equal(1, ended[id])
			mu.Unlock()
			waiting := f.Claim(join.DefaultWaitTopic)
			f.Len(waiting, 1)
			f.Settle(suite.Settled(outbox.Ack, waiting...)...)
		}
	})
}

// Of many that attach at once, as many succeed as the join has room for.
func TestJOIN023_060_NoRaceFillsAJoinBeyondWhatItExpects(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const racers, room = 12, 7
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: room})
		ids := f.EnqueueN("s", racers)
		var mu sync.Mutex
		full := 0
		f.NoError(all(racers, func(i int) error {
			err := c.Attach(f.Context(), nil, id, ids[i])
			if errors.Is(err, join.ErrFull) {
				mu.Lock()
				defer mu.Unlock()
				full++
				return nil
			}
			return err
		}))
		f.Equal(racers-room, full)
		f.Equal(room, f.JoinRow(id).Members)
		again := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(all(racers, func(int) error { return c.Attach(f.Context(), nil, again, ids[0]) }), "the same one, by all")
		f.Equal(1, f.JoinRow(again).Attached)
		f.Equal(room, f.JoinRow(id).Attached)
	})
}

// conflictOnce is a pool on which the first statement about joins loses a conflict.
func (f *fixture) conflictOnce() (pool *sql.DB, conflicts *atomic.Int32) {
	f.T.Helper()
	conflicts = &atomic.Int32{}
	pool = faults.Open(f.T, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
		if strings.Contains(strings.ToLower(s.Text), "outbox_join") && conflicts.CompareAndSwap(0, 1) {
			return faults.Deadlock(f.DB.Name)
		}
		return nil
	}})
	return pool, conflicts
}

func TestJOIN062_ALostConflictIsRetriedOrReturned(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		calls := map[string]func(c *join.Coordinator, x outbox.Executor, id join.ID, steps []outbox.MessageID) error{
			"start": func(c *join.Coordinator, x outbox.Executor, _ join.ID, _ []outbox.MessageID) error {
				_, err := c.Start(f.Context(), x, join.StartParams{ExpectedSteps: 1})
				return err
			},
			"attach": func(c *join.Coordinator, x outbox.Executor, id join.ID, steps []outbox.MessageID) error {
				return c.Attach(f.Context(), x, id, steps[1])
			},
			"enqueue": func(c *join.Coordinator, x outbox.Executor, id join.ID, _ []outbox.MessageID) error {
				_, err := c.Enqueue(f.Context(), x, id, outbox.Message{Topic: "enqueued"})
				return err
			},
			"report": func(c *join.Coordinator, x outbox.Executor, id join.ID, steps []outbox.MessageID) error {
				return c.ReportStepCompleted(f.Context(), x, id, steps[0])
			},
			"wait": func(c *join.Coordinator, x outbox.Executor, id join.ID, _ []outbox.MessageID) error {
				_, err := c.EnqueueWait(f.Context(), x, suite.Waits(id, "next", ""))
				return err
			},
			"cancel": func(c *join.Coordinator, x outbox.Executor, id join.ID, _ []outbox.MessageID) error {
				return c.Cancel(f.Context(), x, id)
			},
		}
		for name, call := range calls {
			begin := func() (join.ID, []outbox.MessageID) {
				id := f.Start(c, join.StartParams{Open: true})
				return id, append(f.AddSteps(c, id, "s", 1), f.EnqueueN("other", 1)...)
			}
			on := func(pool *sql.DB) *join.Coordinator {
				c, err := join.NewCoordinator(pool, join.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil)
				f.NoError(err)
				return c
			}
			id, steps := begin()
			pool, conflicts := f.conflictOnce()
			f.NoError(call(on(pool), nil, id, steps), "%s, in a transaction of its own", name)
			f.Equal(int32(1), conflicts.Load(), name)

			id, steps = begin()
			pool, _ = f.conflictOnce()
			tx, err := pool.BeginTx(f.Context(), nil)
			f.NoError(err)
			err = call(on(pool), tx, id, steps)
			f.True(outbox.IsRetryable(err), "%s, in the caller's: %v", name, err)
			f.NoError(tx.Rollback())
			r := f.JoinRow(id)
			f.Equal([]int{0, 0, 0, 1, 1, 0}, []int{r.Completed, r.Failed, r.Status, r.Members, r.Attached, r.Waiting}, name)
		}
	})
}
