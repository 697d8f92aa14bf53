// Package idempotency answers a repeated request with the response to the first one. The response is committed with the
// effect, so there is never one without the other.
package idempotency

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
)

var (
	// ErrMismatch is returned when a key was used before for another request.
	ErrMismatch = errors.New("this key was used for another request")

	// ErrInFlight is returned when the first request with the key is still running after Config.Wait.
	ErrInFlight = errors.New("the first request with this key is still running")
)

// A Key names a request of a user. Hash tells different requests apart.
type Key struct {
	User, Route, Request string
	Hash                 string
}

// A Response is what is stored and sent again.
type Response struct {
	Status  int
	Headers map[string]string
	Body    []byte
}

// Config configures a Store.
type Config struct {
	// TTL is how long a response is kept. Defaults to 24 h.
	TTL time.Duration

	// Wait is how long a request waits for the first one with its key in this process. Defaults to 1 s; between processes the
	// database waits as long.
	Wait time.Duration
}

// A Store runs requests, each key once.
type Store struct {
	db         *database.Database
	statements *database.Statements
	config     Config

	mu      sync.Mutex
	running map[Key]chan struct{} // without hashes: closed when the request ends
}

// New returns a store over the statements key_….
func New(db *database.Database, statements *database.Statements, config Config) *Store {
	if config.TTL == 0 {
		config.TTL = 24 * time.Hour
	}
	if config.Wait == 0 {
		config.Wait = time.Second
	}
	return &Store{db: db, statements: statements, config: config, running: map[Key]chan struct{}{}}
}

// Do runs effect in a transaction and stores its response there, or returns the response stored under the key. An effect that
// refuses returns the refusal as a response and has written nothing; an error rolls everything back and stores nothing. It
// returns ErrMismatch or ErrInFlight.
func (s *Store) Do(ctx context.Context, key Key, effect func(context.Context, *sql.Tx) (Response, error)) (r Response, replayed bool, err error) {
	leave, err := s.enter(ctx, key)
	if err != nil {
		return Response{}, false, err
	}
	defer leave()
	const tries = 5
	for range tries {
		err = outbox.InTx(ctx, s.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			r, replayed, err = s.once(ctx, tx, key, effect)
			return err
		})
		// After a lost answer the key tells whether the effect was committed.
		if !outbox.IsRetryable(err) && !errors.Is(err, outbox.ErrUnknownOutcome) {
			break
		}
	}
	return r, replayed, err
}

// enter waits until no other request of this process has the key.
func (s *Store) enter(ctx context.Context, key Key) (leave func(), err error) {
	key.Hash = ""
	timeout := time.NewTimer(s.config.Wait)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		first, busy := s.running[key]
		if !busy {
			mine := make(chan struct{})
			s.running[key] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.running, key)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-first:
		case <-timeout.C:
			return nil, ErrInFlight
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Store) once(ctx context.Context, tx *sql.Tx, key Key, effect func(context.Context, *sql.Tx) (Response, error)) (Response, bool, error) {
	taken, err := s.take(ctx, tx, key)
	if err != nil {
		return Response{}, false, err
	}
	if !taken {
		r, err := s.read(ctx, tx, key)
		return r, true, err
	}
	r, err := effect(ctx, tx)
	if err != nil {
		return r, false, err
	}
	headers, err := json.Marshal(r.Headers)
	if err != nil {
		return r, false, err
	}
	_, err = s.statements.Exec(ctx, tx, "key_finish", key.User, key.Route, key.Request, r.Status, string(headers), r.Body)
	return r, false, err
}

func (s *Store) take(ctx context.Context, tx *sql.Tx, key Key) (bool, error) {
	for _, statement := range []string{"key_insert", "key_renew"} {
		rows, err := s.statements.Exec(ctx, tx, statement, key.User, key.Route, key.Request, key.Hash, s.config.TTL.Milliseconds())
		if isLockTimeout(err) {
			return false, ErrInFlight
		}
		if err != nil || rows > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

func (s *Store) read(ctx context.Context, tx *sql.Tx, key Key) (r Response, err error) {
	var hash, headers string
	found, err := s.statements.Row(ctx, tx, "key_read", []any{key.User, key.Route, key.Request}, []any{&hash, &r.Status, &headers, &r.Body})
	switch {
	case err != nil:
		return r, err
	case !found:
		return r, fmt.Errorf("the key has gone: %w", ErrInFlight) // purged between two statements
	case hash != key.Hash:
		return r, ErrMismatch
	}
	return r, json.Unmarshal([]byte(headers), &r.Headers)
}

// isLockTimeout decides by PostgreSQL's and SQL Server's numbers.
func isLockTimeout(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "55P03"
	}
	var number interface{ SQLErrorNumber() int32 }
	return errors.As(err, &number) && number.SQLErrorNumber() == 1222
}

// Purge deletes what has expired, in batches, and returns how many. It fits outbox.JanitorConfig.Also.
func (s *Store) Purge(ctx context.Context) (total int, err error) {
	const batch = 500
	for ctx.Err() == nil {
		n, err := s.statements.Exec(ctx, s.db, "key_purge", batch)
		total += int(n)
		if err != nil || n < batch {
			return total, err
		}
	}
	return total, ctx.Err()
}
