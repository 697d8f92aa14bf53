package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A spare is a connection that a Subscriber keeps out of the pool while it holds messages: handlers that hold connections
// must not keep it from renewing leases and settling what is answered. A pool without a limit needs none, and a pool of
// one has none to spare. Where many Subscribers share a pool, only some of them keep one.
type spare struct {
	db   *sql.DB
	turn chan struct{} // whoever has put something in may use the rest
	conn *sql.Conn     // nil until it is needed
	kept bool          // it is counted in spares
}

// spares counts the spare connections of each pool of this process, so that most of a pool is left to handlers.
var spares = struct {
	mu sync.Mutex
	of map[*sql.DB]int
}{of: map[*sql.DB]int{}}

// errNoConnection says that a connection of the pool was waited for in vain.
var errNoConnection = errors.New("no connection of the pool was free in time")

func newSpare(db *sql.DB) *spare { return &spare{db: db, turn: make(chan struct{}, 1)} }

// run runs f on the spare connection, or on one of the pool if the spare one stays busy for longer than patience.
func (s *spare) run(ctx context.Context, patience time.Duration, f func(Executor) error) error {
	limit := s.db.Stats().MaxOpenConnections
	if limit == 0 {
		return f(s.db)
	}
	if limit > 1 && s.take(ctx, patience) {
		if s.reserve(limit) {
			defer func() { <-s.turn }()
			return s.runHere(ctx, f)
		}
		<-s.turn
	}
	conn, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // gives it back to the pool; its only error is that it was closed before
	return f(ownConn{conn})
}

// runHere runs f on the spare connection, which the caller has taken. One that turns out to be broken, so that nothing was
// sent, is replaced at once.
func (s *spare) runHere(ctx context.Context, f func(Executor) error) error {
	for first := true; ; first = false {
		if err := s.ensure(ctx); err != nil {
			return err
		}
		err := f(ownConn{s.conn})
		broken := errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
		if broken {
			s.drop()
		}
		if !first || !broken || errors.Is(err, ErrUnknownOutcome) { // a second run would be refused what the first one did
			return err
		}
	}
}

// hold takes the connection out of the pool, while no handler of the Subscriber is using it yet.
func (s *spare) hold(ctx context.Context) error {
	limit := s.db.Stats().MaxOpenConnections
	if limit < 2 || !s.take(ctx, 0) {
		return nil // none is needed, or it is in use
	}
	defer func() { <-s.turn }()
	if !s.reserve(limit) {
		return nil
	}
	return s.ensure(ctx)
}

// reserve reports whether this Subscriber may keep a connection: one in four of a pool are kept, and at least one. The
// caller has the turn.
func (s *spare) reserve(limit int) bool {
	spares.mu.Lock()
	defer spares.mu.Unlock()
	if !s.kept && spares.of[s.db] < max(1, limit/4) {
		spares.of[s.db]++
		s.kept = true
	}
	return s.kept
}

// cancel takes back reserve.
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

// release gives the connection back to the pool, unless it is in use.
func (s *spare) release() {
	if s.take(context.Background(), 0) {
		s.drop()
		s.cancel()
		<-s.turn
	}
}

func (s *spare) take(ctx context.Context, patience time.Duration) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s.turn <- struct{}{}:
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
