package acceptance_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
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
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/internal/testserver"
)

// clients is how many join at once.
const clients = 50

// A figure is printed as a line of JSON.
type figure struct {
	Events  int     `json:"events"`
	Clients int     `json:"clients"`
	Bare    int     `json:"bare_per_second"`
	BareP95 float64 `json:"bare_p95_ms"`
	Join    int     `json:"join_per_second"`
	JoinP95 float64 `json:"join_p95_ms"`
	Ratio   float64 `json:"ratio"`
}

// What a join over HTTP costs beside its bare transaction: the same reads and writes, and a plain table for the message. They
// take turns, so that both find the machine as busy.
func TestLong_AJoinCostsLittleMoreThanItsTransaction(t *testing.T) {
	_, dsn := testserver.Postgres(t, testserver.Durable...)
	rounds, turn := 3, 500*time.Millisecond
	var users atomic.Int64
	if full() {
		turn = 1500 * time.Millisecond
	}
	for _, events := range []int{clients, 1} {
		f := newFixture(t, dsn, registration.Config{})
		ids := make([]string, events)
		for i := range ids {
			f.event = "event-" + uuid.NewString()
			f.snapshot(t, 1, 0, "open")
			ids[i] = f.event
		}
		bare := newBare(t, dsn, f.one())
		wires := make([]*wire, clients)
		for i := range wires {
			wires[i] = newWire(t, f.replicas[i%3].server.URL)
		}
		var bareRun, joinRun measured
		for round := range rounds + 1 {
			if round == 1 { // the first warms up
				bareRun, joinRun = measured{}, measured{}
			}
			bareRun.run(t, turn, func(ctx context.Context, client int) error {
				return bare.join(ctx, ids[client%events], "bare-"+strconv.FormatInt(users.Add(1), 10))
			})
			joinRun.run(t, turn, func(_ context.Context, client int) error {
				bearer := token(t, "user-"+strconv.FormatInt(users.Add(1), 10))
				return wires[client].post("/join/v1/events/"+ids[client%events]+"/join", bearer, "k")
			})
		}
		result := figure{Events: events, Clients: clients, Bare: bareRun.perSecond(), BareP95: bareRun.p95(), Join: joinRun.perSecond(), JoinP95: joinRun.p95()}
		result.Ratio = float64(result.Join) / float64(result.Bare)
		line, err := json.Marshal(result)
		require.NoError(t, err)
		fmt.Println(string(line))
		require.Greater(t, result.Ratio, 0.25, "the aim is 0.6, on a machine that does nothing else")
	}
}

// measured is how long each call took, and all of them together.
type measured struct {
	calls []time.Duration
	took  time.Duration
}

func (m *measured) run(t *testing.T, turn time.Duration, call func(ctx context.Context, client int) error) {
	t.Helper()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(t.Context())
	began := time.Now()
	for client := range clients {
		group.Go(func() error {
			var own []time.Duration
			for time.Since(began) < turn {
				start := time.Now()
				if err := call(ctx, client); err != nil {
					return err
				}
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			m.calls = append(m.calls, own...)
			return nil
		})
	}
	require.NoError(t, group.Wait())
	m.took += time.Since(began)
}

func (m *measured) perSecond() int { return int(float64(len(m.calls)) / m.took.Seconds()) }

func (m *measured) p95() float64 {
	slices.Sort(m.calls)
	return float64(m.calls[len(m.calls)*95/100].Microseconds()) / 1000
}

// bare is a join without HTTP and without the library.
type bare struct {
	db         *database.Database
	statements *database.Statements
}

func newBare(t *testing.T, dsn string, r *replica) bare {
	t.Helper()
	_, err := r.db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS bare_message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uuid text, topic text, headers text, payload bytea)")
	require.NoError(t, err)
	db, err := database.Open(dsn, 30) // as many connections as the three replicas have
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return bare{db, r.service.Statements()}
}

func (b bare) join(ctx context.Context, event, user string) error {
	return outbox.InTx(ctx, b.db.DB, func(ctx context.Context, tx *sql.Tx) error {
		exec := func(name string, args ...any) error {
			_, err := b.statements.Exec(ctx, tx, name, args...)
			return err
		}
		if err := exec("key_insert", user, "join", "k", "hash", int64(86_400_000)); err != nil {
			return err
		}
		var e registration.Event
		var now int64
		if _, err := b.statements.Row(ctx, tx, "event_lock", []any{event}, []any{&e.ID, &e.Version, &e.Title, &e.OrganizerID, &e.Status, &e.Capacity,
			&e.WaitlistLimit, &e.Active, &e.Waiting, &e.LastNumber, &e.Revision, &now}); err != nil {
			return err
		}
		var known registration.Registration
		if _, err := b.statements.Row(ctx, tx, "registration_read", []any{event, user}, []any{&known.EventID, &known.UserID, &known.Status, &known.Number,
			&known.CreatedAt, &known.UpdatedAt, &known.OfferUntil}); err != nil {
			return err
		}
		var bans int
		if _, err := b.statements.Row(ctx, tx, "ban_read", []any{event, user, now}, []any{&bans}); err != nil {
			return err
		}
		e.Active, e.LastNumber, e.Revision = e.Active+1, e.LastNumber+1, e.Revision+1
		if err := exec("registration_insert", event, user, "active", e.LastNumber, now, now, 0); err != nil {
			return err
		}
		payload, err := json.Marshal(registration.Message{Type: registration.JoinConfirmed, EventID: event, Title: e.Title, UserID: user, Number: e.LastNumber, Active: e.Active, Revision: e.Revision})
		if err != nil {
			return err
		}
		if err := exec("event_save", e.ID, e.Version, e.Title, e.OrganizerID, e.Status, e.Capacity, e.WaitlistLimit, e.Active, e.Waiting, e.LastNumber, e.Revision); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO bare_message (uuid, topic, headers, payload) VALUES ($1, $2, $3, $4)", uuid.NewString(), registration.TopicJoin, "{}", payload); err != nil {
			return err
		}
		return exec("key_finish", user, "join", "k", 200, "{}", payload)
	})
}
