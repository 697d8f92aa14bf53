package join_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// Joins of two steps, each with a wait. Two workers end the two at the same moment, and for every third join somebody else
// enqueues the wait just then. Each join ends once and continues once. The normal suite has few of them, and
// OUTBOX_TEST_JOINS=full (make joins) 20,000; where it takes too long to start them, there are fewer.
func TestLong_TwoWorkersRaceForTheLastTwoMembers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		r := &joinRace{fixture: f, patience: suite.Patience, ended: map[join.ID]int{}}
		size, budget := 200, 10*time.Second
		if os.Getenv("OUTBOX_TEST_JOINS") == "full" {
			size, budget, r.patience = 20_000, 5*time.Minute, 2*time.Minute
		}
		started := time.Now()
		r.prepare(size, started.Add(budget))
		prepared := time.Now()
		c := f.Joins()
		stop := f.serveWaits(c, f.Subscriber())
		r.race(c)
		raced := time.Now()
		r.await()
		continued := time.Now()
		stop()
		r.check()
		t.Logf("%d joins, %d continuations, %v: %v to start them, %v to end them, %v until the last continued",
			len(r.racers), len(r.racers), continued.Sub(started).Round(time.Millisecond), prepared.Sub(started).Round(time.Millisecond),
			raced.Sub(prepared).Round(time.Millisecond), continued.Sub(raced).Round(time.Millisecond))
	})
}

type joinRace struct {
	*fixture
	patience time.Duration // without any news
	racers   []racer

	mu    sync.Mutex
	ended map[join.ID]int // how often a worker was told that a join has ended
}

// A racer is a join with the receipts of its two steps.
type racer struct {
	join        join.ID
	steps       []outbox.MessageID
	left, right outbox.Settlement
	late        bool // whether the wait comes in the race itself
	next        string
}

func (r *joinRace) enqueueWait(ctx context.Context, c *join.Coordinator, x outbox.Executor, one racer) error {
	_, err := c.EnqueueWait(ctx, x, join.Wait{Join: one.join, OnComplete: join.Continuation{Topic: one.next}})
	return err
}

// inTracks runs f on some parts of the joins at the same time, where several can write.
func (r *joinRace) inTracks(f func(racers []racer) error) {
	r.T.Helper()
	tracks, size := 4, len(r.racers)
	if r.DB.Name == testdb.SQLite || suite.Probes.Ask(separateProcedures, r.DB) != "" {
		tracks = 1
	}
	var calls []func() error
	for i := range tracks {
		calls = append(calls, func() error { return f(r.racers[i*size/tracks : (i+1)*size/tracks]) })
	}
	r.NoError(atOnce(calls...))
}

// prepare starts the joins, as many as it can before a moment, and claims all their steps.
func (r *joinRace) prepare(size int, until time.Time) {
	r.T.Helper()
	c := r.Joins()
	r.racers = make([]racer, size)
	for i := range r.racers {
		r.racers[i] = racer{late: i%3 == 0, next: fmt.Sprint("next ", i)}
	}
	const batch = 10
	r.inTracks(func(racers []racer) error {
		for from := 0; from < len(racers) && (from == 0 || time.Now().Before(until)); from += batch {
			some := racers[from:min(from+batch, len(racers))]
			if err := r.each(some, func(ctx context.Context, x outbox.Executor, one *racer) (err error) {
				one.join, err = c.Start(ctx, x, join.StartParams{ExpectedSteps: 2})
				return err
			}); err != nil {
				return err
			}
			if err := r.each(some, func(ctx context.Context, x outbox.Executor, one *racer) (err error) {
				one.steps, err = c.Enqueue(ctx, x, one.join, outbox.Message{Topic: "step"}, outbox.Message{Topic: "step"})
				if err != nil || one.late {
					return err
				}
				return r.enqueueWait(ctx, c, x, *one)
			}); err != nil {
				return err
			}
		}
		return nil
	})

	r.racers = slices.DeleteFunc(r.racers, func(one racer) bool { return len(one.steps) == 0 })

	sides := map[outbox.MessageID]*outbox.Settlement{}
	for i := range r.racers {
		one := &r.racers[i]
		sides[one.steps[0]], sides[one.steps[1]] = &one.left, &one.right
	}
	for held := 0; held < 2*len(r.racers); {
		claimed := r.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("step"), Limit: 1000, Lease: time.Hour})
		r.NotEmpty(claimed)
		for _, one := range claimed {
			*sides[one.ID] = outbox.Settlement{Receipt: one.Receipt, Outcome: outbox.Ack}
		}
		held += len(claimed)
	}
}

// each does something for some joins in one transaction.
func (r *joinRace) each(racers []racer, do func(ctx context.Context, x outbox.Executor, one *racer) error) error {
	return seam.Outbox(r.Outbox).InTx(r.Context(), r.DB.DB, func(ctx context.Context, x outbox.Executor) error {
		for i := range racers {
			if err := do(ctx, x, &racers[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// race ends the steps: one join after the other, and sometimes several at a time.
func (r *joinRace) race(c *join.Coordinator) {
	r.T.Helper()
	told := func(o *outbox.Config) {
		o.Hooks.OnJoinEnd = func(e outbox.JoinEvent) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended[e.ID]++
		}
	}
	var workers []func(settlements []outbox.Settlement) error
	for range 2 {
		pool := r.DB.Reopen(r.T)
		o := r.NewOutbox(pool.DB, told)
		workers = append(workers, func(settlements []outbox.Settlement) error {
			refused, err := o.Settle(r.Context(), pool.DB, settlements)
			if err == nil && len(refused) > 0 {
				err = fmt.Errorf("refused: %v", refused)
			}
			return err
		})
	}
	r.inTracks(func(racers []racer) error {
		for turn := 0; len(racers) > 0; turn++ {
			n := min([]int{1, 1, 1, 7}[turn%4], len(racers))
			var left, right []outbox.Settlement
			var late []racer
			for _, one := range racers[:n] {
				left, right = append(left, one.left), append(right, one.right)
				if one.late {
					late = append(late, one)
				}
			}
			racers = racers[n:]
			err := atOnce(
				func() error { return workers[0](left) },
				func() error { return workers[1](right) },
				func() (err error) {
					for _, one := range late {
						err = errors.Join(err, r.enqueueWait(r.Context(), c, nil, one))
					}
					return err
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// atOnce runs calls at the same moment, as far as that is possible.
func atOnce(calls ...func() error) error {
	failures := make([]error, len(calls))
	start := make(chan struct{})
	var group sync.WaitGroup
	for i, call := range calls {
		group.Go(func() {
			<-start
			failures[i] = call()
		})
	}
	close(start)
	group.Wait()
	return errors.Join(failures...)
}

// await waits until there are as many continuations as joins. A wake-up that is lost shows as no news.
func (r *joinRace) await() {
	r.T.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	var n int64
	for since := time.Now(); n < int64(len(r.racers)); <-look.C {
		before := n
		if n = r.Number("SELECT COUNT(*) FROM {all} WHERE {topic} LIKE 'next %%'"); n != before {
			since = time.Now()
		}
		r.Less(time.Since(since), r.patience, "%d of %d joins have continued, and no more do", n, len(r.racers))
	}
}

// check asks the tables, and what the workers were told.
func (r *joinRace) check() {
	r.T.Helper()
	n := int64(len(r.racers))
	r.Equal(n, r.Number("SELECT COUNT(*) FROM {all} WHERE {topic} LIKE 'next %%'"), "continuations")
	r.Equal(n, r.Number("SELECT COUNT(DISTINCT {topic}) FROM {all} WHERE {topic} LIKE 'next %%'"), "joins with a continuation")
	r.Equal(n, r.Number("SELECT COUNT(*) FROM %s WHERE {status} = 1 AND {completed_steps} = 2 AND {failed_steps} = 0", r.SQL("{join}")), "completed joins")
	r.Equal(2*n, r.Number("SELECT COUNT(*) FROM %s WHERE {status} = 1", r.SQL("{member}")), "completed steps")
	r.Equal(n, r.Number("SELECT COUNT(*) FROM {all} WHERE {topic} = '%s' AND {status} = 2 AND {retry_count} = 0", join.DefaultWaitTopic),
		"waits that are done and have spent no attempt")
	for _, one := range r.racers {
		r.Equal(1, r.ended[one.join], "how often the join %v has ended", one.join)
	}
	r.Len(r.ended, len(r.racers))
}
