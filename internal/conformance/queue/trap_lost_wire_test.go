package queue_test

import (
	"context"
	"database/sql"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// A wire stands between the library and a server. When it is cut, what is sent still arrives, and the answer is lost with
// the connection.
type wire struct {
	listener net.Listener
	target   string
	cut      atomic.Bool
	armed    atomic.Bool // to be cut before the next commit
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
