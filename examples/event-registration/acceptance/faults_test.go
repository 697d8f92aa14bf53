package acceptance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// timesOf are how long the small run takes, or with make registration-test the full one.
type timesOf struct{ run, brokerAway, redisAway, kill time.Duration }

func times() timesOf {
	if full() {
		return timesOf{run: 2 * time.Minute, brokerAway: 20 * time.Second, redisAway: 10 * time.Second, kill: 3 * time.Second}
	}
	return timesOf{run: 15 * time.Second, brokerAway: 2 * time.Second, redisAway: 2 * time.Second, kill: 2 * time.Second}
}

// Whatever fails meanwhile: no seat is sold twice, the waitlist is served in its order, nobody is there twice, every message
// arrives in order, each mail is written once, and a repeated request gets the same bytes.
func TestLong_NothingIsLostWhileEverythingFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := testprocess.Seed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	require.NoError(t, w.save(t.Context(), w.events[0], most-1))
	require.NoError(t, w.save(t.Context(), w.events[1], most))
	r := dial(t, w.rabbitmq.URL())
	r.publish(t, "", "mail.joins", withID(watermill.NewUUID()), "{")
	r.publish(t, "", "mail.joins", nil, "{}")
	r.publish(t, "", "registration.events", withID(watermill.NewUUID()), "poison")

	ctx, cancel := context.WithTimeout(t.Context(), times().run)
	defer cancel()
	var group errgroup.Group
	requests, looks := make([]int, 6), 0
	for worker := range requests {
		group.Go(func() (err error) {
			requests[worker], err = w.act(ctx, t, rand.New(rand.NewPCG(seed, uint64(worker))))
			return err
		})
	}
	group.Go(func() (err error) { looks, err = w.sample(ctx); return err })
	group.Go(func() error { return w.resize(ctx, rand.New(rand.NewPCG(seed, 100))) })
	group.Go(func() error { return w.kill(ctx, rand.New(rand.NewPCG(seed, 101))) })
	group.Go(func() error { return w.breakServers(ctx) })
	require.NoError(t, group.Wait())
	require.Greater(t, looks, 100)

	events := map[string]registration.Event{}
	w.quiet(t, events)
	told, ids := w.heard(t)
	total := 0
	for _, event := range w.events {
		e := events[event]
		requireConsistent(t, told[event])
		require.Len(t, told[event], int(e.Revision), event)
		counted, err := w.catalog.Get(t.Context(), event)
		require.NoError(t, err)
		require.Equal(t, []int{e.Active, e.Waiting}, []int{counted.Active, counted.Waiting}, event)
		total += len(told[event])
	}
	require.Equal(t, ids, w.mailed(t), "each has its mail, and nothing else does")
	w.requireDead(t, map[string]int{"mail.joins": 2, "registration.events": 1})
	sum := 0
	for _, n := range requests {
		sum += n
	}
	t.Logf("%d requests, %d messages, %d looks; oversold 0, lost 0, doubled 0", sum, total, looks)
}

// resize gives the second event another capacity now and then.
func (w *world) resize(ctx context.Context, random *rand.Rand) error {
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		err := w.save(context.WithoutCancel(ctx), w.events[1], 1+random.IntN(most))
		if err != nil && !database.Away(err) {
			return err
		}
	}
	return nil
}

// kill ends one process after the other as nothing can be caught, and starts it again, until ctx ends.
func (w *world) kill(ctx context.Context, random *rand.Rand) error {
	for pause(ctx, times().kill); ctx.Err() == nil; pause(ctx, times().kill) {
		victim := w.replicas[random.IntN(len(w.replicas))]
		if random.IntN(4) == 0 {
			victim = w.others[random.IntN(len(w.others))]
		}
		victim.kill()
		pause(ctx, 200*time.Millisecond)
		if err := w.revive(victim); err != nil {
			return err
		}
	}
	return nil
}

// revive starts a process until it listens: it ends at once while PostgreSQL is away.
func (w *world) revive(p *process) error {
	for deadline := time.Now().Add(waitFor); time.Now().Before(deadline); {
		if err := p.start(); err != nil {
			return err
		}
		for p.address() == "" {
			select {
			case <-p.ended:
			case <-time.After(tick):
				continue
			}
			break
		}
		if p.address() != "" {
			return nil
		}
		pause(context.Background(), 500*time.Millisecond)
	}
	return fmt.Errorf("%s does not start: %s", p.parts, &p.log)
}

// breakServers stops and cuts one server after the other, in the time that there is.
func (w *world) breakServers(ctx context.Context) error {
	rest := (times().run - times().brokerAway - times().redisAway) / 10
	steps := []func() error{
		w.cut, w.cut,
		func() error { return w.away(ctx, w.redis.Stop, w.redis.Start, times().redisAway) },
		w.cut,
		func() error { return w.away(ctx, w.postgres.Stop, w.postgres.Start, 500*time.Millisecond) },
		w.cut,
		func() error {
			return w.away(ctx, w.rabbitmq.Stop, func() error { return w.rabbitmq.Start(context.Background()) }, times().brokerAway)
		},
		w.cut,
	}
	for _, step := range steps {
		pause(ctx, rest)
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) cut() error {
	w.proxy.Cut()
	return nil
}

func (w *world) away(ctx context.Context, stop, start func() error, how time.Duration) error {
	if err := stop(); err != nil {
		return err
	}
	pause(ctx, how)
	return start()
}

// deadIn are the messages of a queue that have failed for good.
func deadIn(t *testing.T, db *database.Database, table string) []outbox.Record {
	t.Helper()
	queue, err := outbox.New(db.DB, outbox.Config{Dialect: db.Dialect, Table: table}, nil)
	require.NoError(t, err)
	dead, err := queue.Failed(t.Context(), outbox.ListParams{})
	require.NoError(t, err)
	return dead
}
