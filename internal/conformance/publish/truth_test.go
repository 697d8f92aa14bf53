package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// truthPlan is what takes a second, and full where OUTBOX_TEST_PUBLISH says so.
func truthPlan(backend string) (calls, callers int) {
	switch {
	case os.Getenv("OUTBOX_TEST_PUBLISH") == "full":
		return 102_400, 64 // divides evenly
	case backend == testdb.SQLServer:
		return 400, 8 // few at a time, so that there are many statements to fail
	default:
		return 2000, 32
	}
}

// What returned nil is there once, what returned an error is not there unless it is ErrUnknownOutcome, and a repeated call is
// there once: while connections are cut, backends are killed and publishers close.
func TestEveryCallIsToldTheTruth(t *testing.T) {
	for name, strategy := range map[string]func(*outbox.PublisherConfig){"batch": batch, "interval": every(time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				calls, callers := truthPlan(f.DB.Name)
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				run := newTruth(f, seed)
				run.publish(strategy, calls, callers)
				run.schedule.Stop()
				run.check(calls)
			})
		})
	}
}

// A truth is what the callers were told, by UUID.
type truth struct {
	*fixture
	schedule *faults.Schedule

	mu   sync.Mutex
	told map[string]error
}

func newTruth(f *fixture, seed uint64) *truth {
	return &truth{fixture: f, told: map[string]error{}, schedule: faults.NewSchedule(f.DB.Name, faults.ScheduleConfig{
		Seed: seed, Beside: 0.2, HangBeside: 20 * time.Millisecond, Delay: 5 * time.Millisecond,
	})}
}

// publish has publishers serve an equal part of the calls each; all but the last are closed in the middle.
func (r *truth) publish(strategy func(*outbox.PublisherConfig), calls, callers int) {
	pool := faults.Open(r.T, r.DB, r.schedule.Hooks("publishers"))
	pool.SetMaxOpenConns(4)
	killing, stop := context.WithCancel(r.T.Context())
	var beside sync.WaitGroup
	beside.Go(func() { r.kill(killing) })
	const rounds = 5
	for round := range rounds {
		p, err := outbox.NewPublisher(pool, r.config(strategy, byUUID, func(c *outbox.PublisherConfig) {
			c.Hooks, c.CloseTimeout = outbox.Hooks{}, 50*time.Millisecond
		}), nil)
		r.NoError(err)
		var all sync.WaitGroup
		half := make(chan struct{}, callers)
		for caller := range callers {
			all.Go(func() {
				each := calls / callers / rounds
				for i := range each {
					if i == each/2 {
						half <- struct{}{}
					}
					r.call(p, fmt.Sprintf("%d %d %d", round, caller, i), i%2 == 0)
				}
			})
		}
		for range callers {
			<-half
		}
		if round < rounds-1 {
			_ = p.Close() // it may say that it gave up some, who were told themselves
		}
		all.Wait()
		_ = p.Close()
	}
	stop()
	beside.Wait()
}

// call publishes under a new id, or repeats under the same one until it knows.
func (r *truth) call(p *outbox.Publisher, uuid string, repeat bool) {
	if repeat {
		id, err := r.NewID()
		r.NoError(err)
		uuid = id.String()
	}
	err := p.Publish(topic, msg(r.T.Context(), uuid))
	for repeat && errors.Is(err, outbox.ErrUnknownOutcome) {
		again := p.Publish(topic, msg(r.T.Context(), uuid))
		if again == nil || errors.Is(again, outbox.ErrDuplicateID) {
			err = again
		} else if !errors.Is(again, outbox.ErrUnknownOutcome) {
			break // the first try may have been committed: this one says nothing of it
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[uuid] = err
}

// kill ends the connections of others on PostgreSQL; elsewhere the schedule does what can be done.
func (r *truth) kill(ctx context.Context) {
	if r.DB.Name != testdb.Postgres {
		return
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := r.DB.ExecContext(r.T.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE state = 'active' AND query LIKE '%'||$1||'%' AND query NOT LIKE '%pg_terminate_backend%'`, `"`+r.DB.Schema+`"`)
		if err != nil && ctx.Err() == nil {
			r.T.Errorf("killing the publishers' connections: %v", err)
		}
	}
}

func (r *truth) check(calls int) {
	there := map[string]int{}
	for _, uuid := range r.uuids() {
		there[uuid]++
	}
	outcomes := map[string]int{}
	lost, doubled, wrong := 0, 0, 0
	for uuid, err := range r.told {
		n := there[uuid]
		switch {
		case n > 1:
			doubled++
		case errors.Is(err, outbox.ErrUnknownOutcome):
			outcomes["unknown"]++
		case err == nil, errors.Is(err, outbox.ErrDuplicateID):
			outcomes["nil"]++
			if n == 0 {
				lost++
			}
		default:
			outcomes["error"]++
			if n > 0 {
				wrong++
				r.T.Errorf("%s is there, but its caller was told %v", uuid, err)
			}
		}
		delete(there, uuid)
	}
	total, kinds := r.schedule.Injected()
	r.T.Logf("%d calls: %v; lost %d, doubled %d, wrong %d; %d faults: %s", len(r.told), outcomes, lost, doubled, wrong, total, kinds)
	r.Zero(lost)
	r.Zero(doubled)
	r.Zero(wrong)
	r.Empty(there, "nobody published these")
	r.Positive(outcomes["nil"])
	r.Positive(total)
}
