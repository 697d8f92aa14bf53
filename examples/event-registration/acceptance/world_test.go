package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/examples/event-registration/catalog"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/internal/rabbitmq"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testserver"
)

// A world is all of it as processes: three replicas of the join-service, the two other services, and servers of the test's own.
type world struct {
	postgres *testserver.Server
	redis    *testserver.Server
	rabbitmq *rabbitmq.Node
	proxy    *testbroker.Proxy // between the services and RabbitMQ
	replicas []*process
	others   []*process // event-service and email-service
	db       *database.Database
	catalog  *catalog.Service
	mails    string
	events   []string // the first keeps its capacity
}

// probe is a queue that gets what the services get, for the test.
const probe = "probe.joins"

// most is the highest capacity of any event.
const most = 6

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{mails: filepath.Join(t.TempDir(), "mails"), events: []string{"fixed", "varied"}}
	var dsn, redisURL string
	w.rabbitmq = testbroker.Node(t)
	w.postgres, dsn = testserver.Postgres(t)
	w.redis, redisURL = testserver.Redis(t)
	w.proxy = testbroker.NewProxy(t, w.rabbitmq.URL())
	r := dial(t, w.rabbitmq.URL())
	r.clean(t)
	require.NoError(t, r.ExchangeDeclare(registration.TopicJoin, "fanout", true, false, false, false, nil))
	r.count(t, probe)
	require.NoError(t, r.QueueBind(probe, "", registration.TopicJoin, false, nil))

	args := []string{"-folder", filepath.Dir(w.mails), "-dsn", dsn, "-amqp", w.proxy.URL, "-redis", redisURL, "-rate", "100000", "-lease", "4s"}
	for range 3 {
		w.replicas = append(w.replicas, newProcess(t, "join-service", args...))
	}
	w.others = []*process{newProcess(t, "event-service", args...), newProcess(t, "email-service", args...)}
	for _, p := range append(w.others, w.replicas...) {
		require.NoError(t, p.start()) // all at once, on an empty database
	}
	for _, p := range append(w.others, w.replicas...) {
		require.Eventually(t, func() bool { return p.address() != "" }, waitFor, tick, "%s: %s", p.parts, &p.log)
	}
	var err error
	w.db, err = database.Open(dsn, 4)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.db.Close()) })
	w.catalog, err = catalog.New(t.Context(), w.db, nil)
	require.NoError(t, err)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return w
}

func (w *world) save(ctx context.Context, event string, capacity int) error {
	return w.catalog.Save(ctx, registration.Snapshot{EventID: event, Title: event, OrganizerID: organizer, Status: "open", Capacity: capacity, WaitlistLimit: -1})
}

// ask asks one replica after the other until one decides: the key makes that safe.
func (w *world) ask(ctx context.Context, bearer string, q request) (answer, error) {
	last := "nobody listens"
	for deadline := time.Now().Add(waitFor); time.Now().Before(deadline); pause(ctx, 30*time.Millisecond) {
		url := w.replicas[rand.IntN(len(w.replicas))].address()
		if url == "" {
			continue
		}
		within, cancel := context.WithTimeout(ctx, 15*time.Second)
		a, err := sendTo(within, http.DefaultClient, url, bearer, q)
		cancel()
		switch {
		case err != nil:
			last = err.Error()
		case a.status == http.StatusInternalServerError:
			return a, fmt.Errorf("%s: %d %s", q.path, a.status, a.body)
		case a.header.Get("Retry-After") != "":
			last = string(a.body)
		default:
			return a, nil
		}
	}
	return answer{}, fmt.Errorf("%s is not decided: %s", q.path, last)
}

// act sends one random request after the other until ctx ends, and now and then one again: the answer is the same, byte for byte.
func (w *world) act(ctx context.Context, t *testing.T, random *rand.Rand) (requests int, err error) {
	background := context.WithoutCancel(ctx)
	for ; ctx.Err() == nil; requests++ {
		user := "user-" + strconv.Itoa(random.IntN(25))
		action := []string{"join", "join", "join", "cancel", "cancel", "kick", "ban", "unban"}[random.IntN(8)]
		q := request{method: http.MethodPost, path: "/join/v1/events/" + w.events[random.IntN(2)] + "/" + action, key: uuid.NewString()}
		bearer := tokenOf(t, "event-registration", user)
		if action == "kick" || action == "ban" || action == "unban" {
			bearer, q.body = tokenOf(t, "event-registration", organizer), target(user)
		}
		first, err := w.ask(background, bearer, q)
		if err != nil {
			return requests, err
		}
		if random.IntN(4) > 0 {
			continue
		}
		again, err := w.ask(background, bearer, q)
		if err != nil {
			return requests, err
		}
		if first.status != again.status || string(first.body) != string(again.body) {
			return requests, fmt.Errorf("%s: replayed %d %s as %d %s", action, first.status, first.body, again.status, again.body)
		}
	}
	return requests, nil
}

// sample looks at both events, each time in one statement, until ctx ends.
func (w *world) sample(ctx context.Context) (looks int, err error) {
	for ctx.Err() == nil {
		for i, event := range w.events {
			var capacity, active, rows, waiting, waitingRows int
			err := w.db.QueryRowContext(ctx, `SELECT e.capacity, e.active_count, e.waitlist_count, count(*) FILTER (WHERE r.status = 'active'), count(*) FILTER (WHERE r.status = 'waitlisted')
				FROM registration_event AS e LEFT JOIN registration AS r USING (event_id) WHERE e.event_id = $1 GROUP BY e.event_id`, event).
				Scan(&capacity, &active, &waiting, &rows, &waitingRows)
			if err != nil {
				continue // PostgreSQL is away
			}
			limit := most
			if i == 0 {
				limit = capacity
			}
			if active > limit || active != rows || waiting != waitingRows {
				return looks, fmt.Errorf("%s: %d active of %d, %d rows; %d waiting, %d rows", event, active, limit, rows, waiting, waitingRows)
			}
			looks++
		}
		pause(ctx, 5*time.Millisecond)
	}
	return looks, nil
}

// quiet waits until nothing is under way: the catalog has counted all that was told, and everybody has his mail.
func (w *world) quiet(t *testing.T, events map[string]registration.Event) {
	t.Helper()
	var why string
	require.Eventually(t, func() bool {
		mails := 0
		for _, event := range w.events {
			e := w.event(t, event)
			events[event] = e
			counted, err := w.catalog.Get(context.Background(), event)
			if err != nil || counted.Revision != e.Revision || counted.Version != e.Version {
				why = fmt.Sprintf("%s: the catalog knows %+v of %+v: %v", event, counted, e, err)
				return false
			}
			mails += int(e.Revision)
		}
		written, err := filepath.Glob(filepath.Join(w.mails, "*.txt"))
		why = fmt.Sprintf("%d of %d mails", len(written), mails)
		return err == nil && len(written) == mails
	}, 2*waitFor, 10*tick, "%s", lazy(func() string { return why }))
}

type lazy func() string

func (l lazy) String() string { return l() }

func (w *world) event(t *testing.T, id string) (e registration.Event) {
	t.Helper()
	require.NoError(t, w.db.QueryRowContext(context.Background(),
		"SELECT event_id, version, capacity, active_count, waitlist_count, revision FROM registration_event WHERE event_id = $1", id).
		Scan(&e.ID, &e.Version, &e.Capacity, &e.Active, &e.Waiting, &e.Revision))
	return e
}

// heard drains the probe: what was told of each event, in the order in which it first arrived, by the ids of the messages.
func (w *world) heard(t *testing.T) (told map[string][]registration.Message, ids map[string]bool) {
	t.Helper()
	r := dial(t, w.rabbitmq.URL())
	told, ids = map[string][]registration.Message{}, map[string]bool{}
	for {
		delivery, found, err := r.Get(probe, true)
		require.NoError(t, err)
		if !found {
			return told, ids
		}
		id, _ := delivery.Headers["_watermill_message_uuid"].(string)
		require.NotEmpty(t, id)
		if ids[id] {
			continue // at least once
		}
		ids[id] = true
		var m registration.Message
		require.NoError(t, json.Unmarshal(delivery.Body, &m))
		told[m.EventID] = append(told[m.EventID], m)
		require.Equal(t, int64(len(told[m.EventID])), m.Revision, "%s is out of order", m.EventID)
	}
}

// requireDead checks that only what was poisoned is among the dead letters.
func (w *world) requireDead(t *testing.T, want map[string]int) {
	t.Helper()
	r := dial(t, w.rabbitmq.URL())
	for queue := range broker.Queues {
		require.Equal(t, want[queue], r.count(t, broker.DeadLetters(queue)), queue)
	}
	for _, table := range []string{"registration_inbox", "catalog_inbox", "mail_inbox", "catalog_outbox", "outbox"} {
		require.Empty(t, deadIn(t, w.db, table), table)
	}
}

// mailed are the ids of the messages that have a mail.
func (w *world) mailed(t *testing.T) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.mails, "*"))
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, path := range paths {
		ids[strings.TrimSuffix(filepath.Base(path), ".txt")] = true
	}
	return ids
}
