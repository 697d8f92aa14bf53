package queue_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A wire stands between the library and a server. When it is cut, what is sent still arrives, and the answer is lost with
// the connection.
type wire struct {
	listener net.Listener
	target   string
	cut      atomic.Bool
	armed    atomic.Bool // to be cut before the next commit
	reading  sync.Mutex  // while it is locked, nothing that the server sends is read
	running  sync.WaitGroup
}

// openOverAWire returns a pool on the database of the fixture whose connections go over a wire.
func (f *fixture) openOverAWire() (*sql.DB, *wire) {
	f.T.Helper()
	dsn, err := url.Parse(f.DB.DSN)
	f.NoError(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	f.NoError(err)
	w := &wire{listener: listener, target: dsn.Host}
	w.running.Go(w.serve)
	dsn.Host = listener.Addr().String()
	pool, err := sql.Open(f.DB.DriverName, dsn.String())
	f.NoError(err)
	f.T.Cleanup(func() {
		f.NoError(pool.Close())
		f.NoError(listener.Close())
		w.running.Wait()
	})
	return pool, w
}

func (w *wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.running.Go(func() {
			_, _ = io.Copy(server, client) // until either has closed it
			_ = server.Close()
		})
		w.running.Go(func() {
			w.answer(client, server)
			_ = client.Close()
		})
	}
}

func (w *wire) answer(client, server net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		w.reading.Lock()
		w.reading.Unlock() //nolint:staticcheck // only to wait
		n, err := server.Read(buffer)
		if err != nil || w.cut.Load() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// The drivers' own errors say what our classes of errors assume of them.
func TestTrap_LostAnswersOnTheWire(t *testing.T) {
	for _, backend := range testdb.Backends(t) {
		if backend.Name == testdb.SQLite {
			continue // has no wire
		}
		t.Run(backend.Name, func(t *testing.T) {
			f := &fixture{suite.New(t, backend.Open(t), "")}
			f.Migrate()
			pool, w := f.openOverAWire()
			l := &lossy{fixture: f, pool: pool, outbox: f.NewOutbox(pool)}
			publish := func() error {
				return l.Publisher(pool).Publish("orders", message.NewMessage("1", nil))
			}
			inTx := func() error {
				return outbox.InTx(f.Context(), pool, func(ctx context.Context, tx *sql.Tx) error {
					_, err := l.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
					w.cut.Store(w.armed.Load())
					return err
				})
			}
			for range 2 { // the second use of a connection pings it
				f.NoError(publish())
				f.NoError(inTx())
			}
			before := f.Count()

			w.cut.Store(true)
			err := publish()
			f.ErrorIs(err, outbox.ErrUnknownOutcome)
			f.Eventually(func() bool { return f.Count() == before+1 }, 10*time.Second, 10*time.Millisecond)
			w.cut.Store(false)

			f.NoError(inTx(), "the pool goes on")
			f.NoError(inTx())
			w.armed.Store(true)
			err = inTx()
			f.ErrorIs(err, outbox.ErrUnknownOutcome)
			f.Eventually(func() bool { return f.Count() == before+4 }, 10*time.Second, 10*time.Millisecond)
		})
	}
}

// A machine that is suspended in the middle of reading what it claimed holds no locks that others need for longer than its lease.
func TestTrap_AWorkerThatStopsReading(t *testing.T) {
	stopped := map[string]string{
		testdb.Postgres:  "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite' AND query LIKE '%%%s%%'",
		testdb.SQLServer: "SELECT COUNT(*) FROM [%s].[Outbox_State] WHERE Status = 1",
	}
	for _, backend := range testdb.Backends(t) {
		if backend.Name == testdb.SQLite {
			continue // is read in the same process
		}
		t.Run(backend.Name, func(t *testing.T) {
			f := &fixture{suite.New(t, backend.Open(t), "")}
			f.Migrate()
			pool, w := f.openOverAWire()
			suspended := f.NewOutbox(pool)
			claim := func(o *outbox.Outbox) ([]outbox.Claimed, error) {
				return o.Claim(f.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}, Lease: time.Second})
			}
			_, err := claim(suspended) // which also connects and prepares
			f.NoError(err)
			publish := func(key string, size int) {
				_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", StreamKey: key, Payload: make([]byte, size)})
				f.NoError(err)
			}
			for i := range 24 {
				publish(fmt.Sprint(i), 1<<20) // more than the buffers of a connection hold
			}

			w.reading.Lock()
			var claiming sync.WaitGroup
			claiming.Go(func() { _, _ = claim(suspended) })
			defer claiming.Wait()
			defer w.reading.Unlock()
			f.Eventually(func() bool {
				var n int
				f.NoError(f.DB.QueryRowContext(f.Context(), fmt.Sprintf(stopped[backend.Name], f.DB.Schema)).Scan(&n))
				return n > 0
			}, testoutbox.Patience, 10*time.Millisecond)

			publish("next", 1)
			f.Eventually(func() bool {
				claimed, err := claim(f.Outbox)
				f.NoError(err)
				return slices.ContainsFunc(claimed, func(c outbox.Claimed) bool { return c.StreamKey == "next" })
			}, testoutbox.Patience, 10*time.Millisecond, "nothing is routed to its stream")
		})
	}
}
