package acceptance_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// full reports whether the run is of full size: make registration-test.
func full() bool { return os.Getenv("OUTBOX_TEST_REGISTRATION") == "full" }

// sample reads the event until stop is called, and checks each time that no seat is sold twice.
func sample(t *testing.T, f *fixture, seats int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var looks int
	running.Go(func() {
		for ctx.Err() == nil {
			e, err := f.replicas[2].service.Stats(ctx, f.event, registration.Actor{Admin: true})
			if err == nil && e.Active > seats {
				t.Errorf("oversold: %d of %d", e.Active, seats)
			}
			rows, err := f.replicas[2].service.List(ctx, f.event, registration.Active, 0, seats+10, registration.Actor{Admin: true})
			if err == nil && len(rows) > seats {
				t.Errorf("oversold: %d rows for %d seats", len(rows), seats)
			}
			looks++
		}
	})
	return func() {
		cancel()
		running.Wait()
		require.Positive(t, looks)
	}
}

func TestParallelJoinsOverThreeReplicasNeverOversell(t *testing.T) {
	const seats = 50
	people := 100
	if full() {
		people = 10_000
	}
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, seats, "open")
		stop := sample(t, f, seats)
		tokens := make([]string, people)
		for i := range tokens {
			tokens[i] = token(t, "user-"+strconv.Itoa(i))
		}
		began := time.Now()
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(100)
		for i := range people {
			group.Go(func() error {
				a, err := send(ctx, f.replicas[i%3].server, tokens[i], request{method: http.MethodPost, path: f.path("join"), key: f.event})
				if err == nil && a.status != http.StatusOK {
					err = fmt.Errorf("%d: %s", a.status, a.body)
				}
				return err
			})
		}
		require.NoError(t, group.Wait())
		t.Logf("%d joins in %v", people, time.Since(began))
		stop()

		e := f.requireBalanced(t)
		require.Equal(t, []int{seats, people - seats}, []int{e.Active, e.Waiting})
		// The messages are in the order of commits, and so are the numbers.
		messages := f.told(t)
		require.Len(t, messages, people)
		for i, m := range messages {
			require.Equal(t, int64(i+1), m.Number)
			want := registration.JoinConfirmed
			if i >= seats {
				want = registration.JoinWaitlisted
			}
			require.Equal(t, want, m.Type)
		}
		var waiting []string
		for _, r := range f.all(t, registration.Waitlisted) {
			waiting = append(waiting, r.UserID)
		}
		for i, m := range messages[seats:] {
			require.Equal(t, m.UserID, waiting[i])
		}
	})
}

func TestOneKeyAHundredTimesAtOnceHasOneEffect(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 10, "open")
		bearer := token(t, "ada")
		var inFlight atomic.Int32
		bodies := make([]string, 100)
		group, ctx := errgroup.WithContext(t.Context())
		for i := range bodies {
			group.Go(func() error {
				for {
					a, err := send(ctx, f.replicas[i%3].server, bearer, request{method: http.MethodPost, path: f.path("join"), key: `"` + f.event + `"`})
					if err != nil {
						return err
					}
					if a.status == http.StatusConflict && a.header.Get("Retry-After") != "" {
						inFlight.Add(1)
						continue
					}
					bodies[i] = string(a.body)
					return nil
				}
			})
		}
		require.NoError(t, group.Wait())
		require.Len(t, slices.Compact(bodies), 1, "byte for byte")
		require.Len(t, f.told(t), 1)
		require.Equal(t, 1, f.requireBalanced(t).Active)
	})
}

func TestAKeyWithAnotherBodyIsRefusedAndOneInFlightIsWaitedFor(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 10, "open")
		f.join(t, "a", "b")
		kick := request{method: http.MethodPost, path: f.path("kick"), user: organizer, key: "k-" + f.event, body: `{"user_id":"a","reason":"late"}`}
		first := f.send(t, kick)
		require.Equal(t, http.StatusOK, first.status)
		kick.body = ` { "reason":"late", "user_id" : "a" } `
		require.Equal(t, first.body, f.send(t, kick).body, "the same, written otherwise")
		kick.body = target("b")
		other := f.send(t, kick)
		require.Equal(t, http.StatusUnprocessableEntity, other.status)
		require.Equal(t, "idempotency_key.mismatch", other.code(t))
		require.Equal(t, "active", f.status(t, "b"))
		withConcurrentWriters(t, f)

		// A transaction holds the event, so the first request cannot end.
		held := request{method: http.MethodPost, path: f.path("join"), key: "held-" + f.event}
		bearer := token(t, "c")
		var running errgroup.Group
		f.in(t, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := f.one().service.Join(ctx, tx, f.event, "d"); err != nil {
				return err
			}
			answers := make(chan answer, 2)
			for i := range 2 { // on two replicas: the database tells the second one
				running.Go(func() error {
					a, err := send(t.Context(), f.replicas[i].server, bearer, held)
					answers <- a
					return err
				})
			}
			a := <-answers
			require.Equal(t, "idempotency_key.in_flight", a.code(t))
			require.NotEmpty(t, a.header.Get("Retry-After"))
			return nil
		})
		require.NoError(t, running.Wait())
		require.Equal(t, "active", f.status(t, "c"))
	})
}

// Whatever happens in whatever order, seats are never sold twice, the waitlist is served in its order, and counters equal rows.
func TestRandomChangesOverThreeReplicas(t *testing.T) {
	long := 2 * time.Second
	if full() {
		long = 20 * time.Second
	}
	onEach(t, func(t *testing.T, f *fixture) {
		t.Parallel()
		const most = 8
		f.snapshot(t, 1, most, "open")
		stop := sample(t, f, most)
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		var workers errgroup.Group
		for worker := range 6 {
			workers.Go(func() error { return change(ctx, t, f, worker) })
		}
		workers.Go(func() error {
			for version := int64(2); ctx.Err() == nil; version++ {
				err := outbox.InTx(context.WithoutCancel(ctx), f.one().db.DB, func(ctx context.Context, tx *sql.Tx) error {
					_, err := f.one().service.Apply(ctx, tx, registration.Snapshot{EventID: f.event, Version: version,
						OrganizerID: organizer, Status: "open", Capacity: 1 + rand.IntN(most), WaitlistLimit: -1})
					return err
				})
				if err != nil {
					return err
				}
				pause(ctx, 50*time.Millisecond)
			}
			return nil
		})
		require.NoError(t, workers.Wait())
		stop()
		f.requireBalanced(t)
		requireConsistent(t, f.told(t))
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// change sends one random request after the other, and each now and then twice.
func change(ctx context.Context, t *testing.T, f *fixture, worker int) error {
	random := rand.New(rand.NewPCG(uint64(worker), 1))
	for ctx.Err() == nil {
		user := "user-" + strconv.Itoa(random.IntN(20))
		action := []string{"join", "join", "join", "cancel", "kick", "ban", "unban"}[random.IntN(7)]
		q := request{method: http.MethodPost, path: f.path(action), key: uuid.NewString()}
		bearer := token(t, user)
		if action == "kick" || action == "ban" || action == "unban" {
			bearer, q.body = token(t, organizer), target(user)
		}
		first, err := send(t.Context(), f.replicas[random.IntN(3)].server, bearer, q)
		if err != nil {
			return err
		}
		if first.status >= 500 {
			return fmt.Errorf("%s: %d %s", action, first.status, first.body)
		}
		if random.IntN(4) > 0 {
			continue
		}
		again, err := send(t.Context(), f.replicas[random.IntN(3)].server, bearer, q)
		if err != nil {
			return err
		}
		if first.status != again.status || string(first.body) != string(again.body) {
			return fmt.Errorf("%s: replayed %s as %s", action, first.body, again.body)
		}
	}
	return nil
}

// requireConsistent plays the messages: nobody is there twice, and only the first of the waitlist is promoted.
func requireConsistent(t *testing.T, messages []registration.Message) {
	t.Helper()
	active := map[string]bool{}
	var waiting []string
	for _, m := range messages {
		switch m.Type {
		case registration.JoinConfirmed:
			require.False(t, active[m.UserID], "twice: %v", m)
			active[m.UserID] = true
		case registration.JoinWaitlisted:
			require.False(t, active[m.UserID] || slices.Contains(waiting, m.UserID), "twice: %v", m)
			waiting = append(waiting, m.UserID)
		case registration.JoinPromoted:
			require.NotEmpty(t, waiting)
			require.Equal(t, waiting[0], m.UserID, "not the first of the waitlist")
			waiting, active[m.UserID] = waiting[1:], true
		case registration.JoinCanceled, registration.JoinKicked, registration.JoinBanned:
			delete(active, m.UserID)
			waiting = slices.DeleteFunc(waiting, func(user string) bool { return user == m.UserID })
		}
		require.Equal(t, []int{len(active), len(waiting)}, []int{m.Active, m.Waiting}, "%v", m)
	}
}
