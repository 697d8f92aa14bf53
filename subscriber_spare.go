package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/internal/engine"
)

// A spare is a connection that a Subscriber keeps out of the pool while it holds messages, so that it can renew leases and
// settle even if handlers hold all others. A pool without a limit needs none, and a pool of one has none to spare. If many
// Subscribers share a pool, only some of them keep one.
type spare struct {
	db   *sql.DB
	lock chan struct{} // on the fields below: sending takes it
	conn *sql.Conn     // nil until it is needed
	kept bool          // counted in spares
}

// spares counts the spare connections of each pool in this process, so that most of a pool is left to handlers.
var spares = struct {
	mu sync.Mutex
	of map[*sql.DB]int
}{of: map[*sql.DB]int{}}

// errNoConnection means that no connection of the pool became free.
var errNoConnection = errors.New("no connection of the pool was free in time")

func newSpare(db *sql.DB) *spare { return &spare{db: db, lock: make(chan struct{}, 1)} }

// run runs f on the spare connection, or on another one of the pool if the spare is busy for longer than patience.
func (s *spare) run(ctx context.Context, patience time.Duration, f func(Executor) error) error {
	limit := s.db.Stats().MaxOpenConnections
	if limit == 0 {
		return f(s.db)
	}
	if limit > 1 && s.take(ctx, patience) {
		if s.reserve(limit) {
			defer func() { <-s.lock }()
			return s.runHere(ctx, f)
		}
		<-s.lock
	}
	conn, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // returns it to the pool; its only error is that it was already closed
	return f(engine.OwnConn{Conn: conn})
}

// runHere runs f on the spare connection, whose lock the caller has. If it turns out to be broken, so that nothing was sent,
// it is replaced at once.
func (s *spare) runHere(ctx context.Context, f func(Executor) error) error {
	for first := true; ; first = false {
		if err := s.ensure(ctx); err != nil {
			return err
		}
		err := f(engine.OwnConn{Conn: s.conn})
		broken := errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
		if broken {
			s.drop()
		}
		if !first || !broken || errors.Is(err, ErrUnknownOutcome) { // a second run would be refused if the first one was committed
			return err
		}
	}
}

// hold takes the connection out of the pool, before handlers of the Subscriber can use it.
func (s *spare) hold(ctx context.Context) error {
	limit := s.db.Stats().MaxOpenConnections
	if limit < 2 || !s.take(ctx, 0) {
		return nil // none is needed, or it is in use
	}
	defer func() { <-s.lock }()
	if !s.reserve(limit) {
		return nil
	}
	return s.ensure(ctx)
}

// reserve reports whether this Subscriber may keep a connection: a quarter of a pool is kept, and at least one. The
// caller has the lock.
func (s *spare) reserve(limit int) bool {
	spares.mu.Lock()
	defer spares.mu.Unlock()
	if !s.kept && spares.of[s.db] < max(1, limit/4) {
		spares.of[s.db]++
		s.kept = true
	}
	return s.kept
}

// cancel undoes reserve.
func (s *spare) cancel() {
	spares.mu.Lock()
	defer spares.mu.Unlock()
	if !s.kept {
		return
	}
	s.kept = false
	if spares.of[s.db]--; spares.of[s.db] == 0 {
		delete(spares.of, s.db)
	}
}

// release returns the connection to the pool, unless it is in use.
func (s *spare) release() {
	if s.take(context.Background(), 0) {
		s.drop()
		s.cancel()
		<-s.lock
	}
}

func (s *spare) take(ctx context.Context, patience time.Duration) bool {
	select {
	case s.lock <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s.lock <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (s *spare) ensure(ctx context.Context) (err error) {
	if s.conn == nil {
		s.conn, err = s.open(ctx)
	}
	return err
}

func (s *spare) open(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w: %w", errNoConnection, err)
	}
	return conn, err
}

func (s *spare) drop() {
	if s.conn != nil {
		_ = s.conn.Close() // as above
		s.conn = nil
	}
}
