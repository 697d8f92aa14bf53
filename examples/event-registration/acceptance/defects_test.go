package acceptance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

func TestAReplayedJoinAfterACancelAnswersAsBeforeAndDoesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 1, "open")
		join := request{method: http.MethodPost, path: f.path("join"), user: "ada", key: "k-" + f.event}
		first := f.send(t, join)
		require.Equal(t, http.StatusOK, first.status)
		require.Equal(t, http.StatusOK, f.post(t, "ada", "cancel", "").status)
		for range 3 { // on each replica
			again := f.send(t, join)
			require.Equal(t, first.status, again.status)
			require.Equal(t, first.body, again.body)
			require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
		}
		require.Equal(t, "canceled", f.status(t, "ada"))
		require.Zero(t, f.requireBalanced(t).Active)

		refused := request{method: http.MethodPost, path: f.path("cancel"), user: "ada", key: "late-" + f.event}
		first = f.send(t, refused)
		require.Equal(t, "state_already_reached", first.code(t))
		f.join(t, "ada")
		require.Equal(t, first.body, f.send(t, refused).body, "a refusal is stored too")
		require.Equal(t, "active", f.status(t, "ada"))
	})
}

func TestAKeyBelongsToItsUserAndExpires(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 0, "open")
		for _, user := range []string{"ada", "bob"} {
			a := f.send(t, request{method: http.MethodPost, path: f.path("join"), user: user, key: "same-" + f.event})
			require.Equal(t, http.StatusOK, a.status)
			require.Empty(t, a.header.Get("Idempotency-Replayed"))
		}
		for _, action := range []string{"kick", "ban", "unban", "join", "cancel"} {
			a := f.send(t, request{method: http.MethodPost, path: f.path(action), user: organizer, body: target("ada")})
			require.Equal(t, "idempotency_key.required", a.code(t))
		}

		require.Equal(t, 0, must(f.one().keys.Purge(t.Context())), "nothing has expired")
		expired := "UPDATE registration_key SET expires_at = 1 WHERE user_id = 'ada'"
		_, err := f.one().db.ExecContext(t.Context(), expired)
		require.NoError(t, err)
		a := f.send(t, request{method: http.MethodPost, path: f.path("join"), user: "ada", key: "same-" + f.event})
		require.Equal(t, "state_already_reached", a.code(t), "an expired key is new")
		_, err = f.one().db.ExecContext(t.Context(), expired)
		require.NoError(t, err)
		require.NotZero(t, must(f.one().keys.Purge(t.Context())))
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestTheWaitlistIsInTheOrderOfCommits(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		withConcurrentWriters(t, f)
		f.snapshot(t, 1, 1, "open")
		f.join(t, "first")
		f.in(t, func(ctx context.Context, early *sql.Tx) error {
			if _, err := early.ExecContext(ctx, "SELECT 1"); err != nil { // it has begun
				return err
			}
			f.join(t, "before")
			_, err := f.one().service.Join(ctx, early, f.event, "early")
			return err
		})
		f.join(t, "after")
		var names []string
		for _, r := range f.all(t, registration.Waitlisted) {
			names = append(names, r.UserID)
		}
		require.Equal(t, []string{"before", "early", "after"}, names)
	})
}

func TestAShrunkEventPromotesNobodyUntilThereIsRoom(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 3, "open")
		f.join(t, "a", "b", "c", "d", "e")
		f.snapshot(t, 2, 1, "open")
		require.Equal(t, 3, f.requireBalanced(t).Active, "nobody is thrown out")
		require.Equal(t, http.StatusOK, f.post(t, "a", "cancel", "").status)
		require.Equal(t, http.StatusOK, f.post(t, organizer, "kick", target("b")).status)
		require.Equal(t, "waitlisted", f.status(t, "d"))
		require.Equal(t, http.StatusOK, f.post(t, "c", "cancel", "").status)
		require.Equal(t, "active", f.status(t, "d"))
		e := f.requireBalanced(t)
		require.Equal(t, []int{1, 1}, []int{e.Active, e.Waiting})
	})
}

func TestRaisingTheCapacityPromotesInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 1, "open")
		f.join(t, "a", "b", "c", "d")
		f.snapshot(t, 2, 3, "open")
		require.Equal(t, []string{"join.confirmed a", "join.waitlisted b", "join.waitlisted c", "join.waitlisted d", "join.promoted b", "join.promoted c"}, types(f.told(t)))
		f.snapshot(t, 3, 0, "open")
		require.Equal(t, 4, f.requireBalanced(t).Active, "0 is unlimited")
	})
}

func TestABanPromotesAndTells(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 1, "open")
		f.join(t, "a", "b")
		require.Equal(t, http.StatusOK, f.post(t, organizer, "ban", target("a")).status)
		require.Equal(t, "join.banned", f.post(t, "a", "join", "").code(t))
		require.Equal(t, "active", f.status(t, "b"))
		require.Equal(t, http.StatusOK, f.post(t, organizer, "unban", target("a")).status)
		require.Equal(t, "ban.not_found", f.post(t, organizer, "unban", target("a")).code(t))
		f.join(t, "a")
		require.Equal(t, []string{"join.confirmed a", "join.waitlisted b", "join.banned a", "join.promoted b", "join.unbanned a", "join.waitlisted a"}, types(f.told(t)))

		past := `{"user_id":"c","expires_at":"2020-01-01T00:00:00Z"}`
		require.Equal(t, http.StatusOK, f.post(t, organizer, "ban", past).status)
		f.join(t, "c") // an expired ban is none
	})
}

// Every change is one transaction: rolled back, it leaves nothing.
func TestAChangeThatIsRolledBackLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 1, "open")
		f.join(t, "a", "b")
		require.Equal(t, http.StatusOK, f.post(t, organizer, "ban", target("z")).status)
		before, told := f.requireBalanced(t), f.told(t)
		by, s := registration.Actor{Admin: true}, f.one().service
		for name, do := range map[string]func(context.Context, *sql.Tx) error{
			"join":   func(ctx context.Context, tx *sql.Tx) error { _, err := s.Join(ctx, tx, f.event, "c"); return err },
			"cancel": func(ctx context.Context, tx *sql.Tx) error { _, err := s.Cancel(ctx, tx, f.event, "a"); return err },
			"kick": func(ctx context.Context, tx *sql.Tx) error {
				_, err := s.Kick(ctx, tx, f.event, "a", "", by)
				return err
			},
			"ban": func(ctx context.Context, tx *sql.Tx) error {
				_, err := s.Ban(ctx, tx, registration.Ban{EventID: f.event, UserID: "a"}, by)
				return err
			},
			"unban": func(ctx context.Context, tx *sql.Tx) error { return s.Unban(ctx, tx, f.event, "z", by) },
		} {
			crash := errors.New("crash")
			require.ErrorIs(t, outbox.InTx(t.Context(), f.one().db.DB, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, do(ctx, tx), name)
				return crash
			}), crash)
			require.Equal(t, before, f.requireBalanced(t), name)
		}
		require.Len(t, told, 3)
		require.Equal(t, "join.banned", f.post(t, "z", "join", "").code(t), "the ban is still there")
		require.Equal(t, []string{"active", "waitlisted"}, []string{f.status(t, "a"), f.status(t, "b")})
	})
}

// All lock the event first, so however they meet, nobody waits for somebody who waits for him.
func TestBansAndCancelsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	rounds := 5
	if full() {
		rounds = 160 // 5,120 requests on each database
	}
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 2, "open")
		var running errgroup.Group
		for worker := range 8 {
			user := "user-" + strconv.Itoa(worker/2) // of two workers at once
			running.Go(func() error {
				for range rounds {
					for _, do := range []string{"join", "cancel", "ban", "unban"} {
						q, who := request{method: http.MethodPost, path: f.path(do), key: uuid.NewString()}, user
						if do == "ban" || do == "unban" {
							q.body, who = target(user), organizer
						}
						a, err := send(t.Context(), f.replicas[worker%3].server, token(t, who), q)
						if err != nil || a.status >= 500 {
							return fmt.Errorf("%s: %d %s: %w", do, a.status, a.body, err)
						}
					}
				}
				return nil
			})
		}
		require.NoError(t, running.Wait())
		f.requireBalanced(t)
		requireConsistent(t, f.told(t))
	})
}

func TestALateSnapshotChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		require.True(t, f.snapshot(t, 2, 2, "open"))
		require.False(t, f.snapshot(t, 1, 9, "closed"), "late")
		require.False(t, f.snapshot(t, 2, 9, "open"), "twice")
		f.join(t, "a")
		require.True(t, f.snapshot(t, 3, 2, "closed"), "unpublished")
		require.Equal(t, "event.closed", f.post(t, "b", "join", "").code(t))
		require.True(t, f.snapshot(t, 4, 2, "open"), "published again")
		f.join(t, "b")
		require.True(t, f.snapshot(t, 6, 2, "canceled"))
		require.False(t, f.snapshot(t, 7, 2, "open"), "canceled is for good")
		require.Equal(t, "event.closed", f.post(t, "c", "join", "").code(t))
		require.Equal(t, "event.closed", f.post(t, "a", "cancel", "").code(t))
		require.Equal(t, "canceled", f.status(t, "a"))
		f.requireBalanced(t)
	})
}

func TestOnlyTheOrganizerOfTheSnapshotModerates(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 2, "open")
		f.join(t, "a")
		for _, action := range []string{"kick", "ban", "unban"} {
			require.Equal(t, "auth.forbidden", f.post(t, "b", action, target("a")).code(t))
		}
		for _, what := range []string{"participants", "waitlist", "stats"} {
			require.Equal(t, "auth.forbidden", f.get(t, "b", what).code(t))
			require.Equal(t, http.StatusOK, f.get(t, organizer, what).status)
			require.Equal(t, http.StatusOK, f.get(t, "admin", what).status)
		}
		require.Equal(t, http.StatusOK, f.post(t, "admin", "kick", target("a")).status)
	})
}

// Each message carries the counters after it, so that a consumer counts no one who waits and everyone who leaves.
func TestMessagesCarryTheCounters(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 1, "open")
		f.join(t, "a", "b", "c")
		f.post(t, organizer, "kick", target("a"))
		f.post(t, organizer, "ban", target("b"))
		var active, waiting []int
		messages := f.told(t)
		for _, m := range messages {
			active, waiting = append(active, m.Active), append(waiting, m.Waiting)
		}
		require.Equal(t, []string{"join.confirmed a", "join.waitlisted b", "join.waitlisted c", "join.kicked a", "join.promoted b", "join.banned b", "join.promoted c"}, types(messages))
		require.Equal(t, []int{1, 1, 1, 0, 1, 0, 1}, active)
		require.Equal(t, []int{0, 1, 2, 2, 1, 1, 0}, waiting)
	})
}

func TestRateLimitsAreByUserSparesHealthAndSaysWhen(t *testing.T) {
	f := &fixture{event: "event"}
	dsn := t.TempDir() + "/limits.db"
	f.replicas = []*replica{newReplica(t, dsn, registration.Config{}, httpapi.Config{Auth: auth, Limiter: httpapi.NewBuckets(0.01, 2)})}
	for range 2 {
		require.Equal(t, http.StatusNotFound, f.get(t, "a", "my").status)
	}
	a := f.get(t, "a", "my")
	require.Equal(t, "rate_limited", a.code(t))
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(t, http.StatusNotFound, f.get(t, "b", "my").status)
	for range 5 {
		require.Equal(t, http.StatusOK, f.send(t, request{method: http.MethodGet, path: "/healthz"}).status)
	}
}

func TestReadinessIsThatOfTheDatabase(t *testing.T) {
	broken := errors.New("no database")
	var err error
	f := &fixture{}
	r := newReplica(t, t.TempDir()+"/ready.db", registration.Config{}, httpapi.Config{Auth: auth, Ready: func(context.Context) error { return err }})
	f.replicas = []*replica{r}
	ready := request{method: http.MethodGet, path: "/readyz"}
	require.Equal(t, http.StatusOK, f.send(t, ready).status)
	err = broken
	require.Equal(t, "not_ready", f.send(t, ready).code(t))
	err = nil
	r.api.Drain()
	require.Equal(t, "not_ready", f.send(t, ready).code(t))
	require.Equal(t, http.StatusOK, f.send(t, request{method: http.MethodGet, path: "/healthz"}).status)
}

func TestAnUnknownStatusIsARefusal(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		a := f.send(t, request{method: http.MethodGet, path: "/join/v1/me/joins?status=unknown", user: "a"})
		require.Equal(t, "request.invalid", a.code(t))
	})
}

func TestAnOfferExpires(t *testing.T) {
	for name, dsn := range dsns {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dsn, registration.Config{OfferFor: 50 * time.Millisecond})
			f.snapshot(t, 1, 1, "open")
			stop := runTasks(t, f.one())
			f.join(t, "a", "b", "c")
			f.post(t, "a", "cancel", "")
			require.Eventually(t, func() bool { return f.status(t, "b") == "expired" && f.status(t, "c") == "expired" }, 30*time.Second, 20*time.Millisecond)
			stop()
			require.Zero(t, f.requireBalanced(t).Active)
			require.Equal(t, []string{"join.confirmed a", "join.waitlisted b", "join.waitlisted c", "join.canceled a", "join.promoted b", "join.expired b", "join.promoted c", "join.expired c"}, types(f.told(t)))
		})
	}
}
