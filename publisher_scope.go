package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/engine"
)

// A txScope is what is kept of a transaction until it ends: what was collected in it, and, if InTx commits it, the topics to
// wake afterwards.
type txScope struct {
	tx  weak.Pointer[sql.Tx]
	own bool // a caller's, whose end is not visible here; InTx ends the others

	flushing sync.Mutex // held while what was collected is written; taken before mu

	mu        sync.Mutex // guards all below
	collected []collected
	ended     bool                           // it takes no more
	topics    map[string]map[string]struct{} // to wake, by store; nil if it is a caller's own
}

// A collected call waits in the scope of its transaction.
type collected struct {
	publisher *Publisher
	call      *pendingCall
}

// collect takes the messages of a call into the scope of their transaction.
func (p *Publisher) collect(tx *sql.Tx, messages []Message) error {
	call, err := p.outbox.pending(messages)
	if err != nil {
		return err
	}
	for {
		scope := p.ensureScope(tx)
		if err := finished(tx); err != nil {
			scope.forget()
			return fmt.Errorf("publish: %w", err)
		}
		if scope.add(collected{p, call}) {
			return nil
		}
		if !scope.own {
			return fmt.Errorf("publish after InTx has begun to commit: %w", sql.ErrTxDone)
		}
	}
}

// ensureScope returns the scope of a transaction. When it is a new one of a caller's own, this Publisher also gives up what it
// has in transactions that the garbage collector has found unused, because nobody can flush those. It does not ask the others
// whether they have ended: that might wait for a running statement, which may itself wait for a lock of this transaction.
func (p *Publisher) ensureScope(tx *sql.Tx) *txScope {
	scope, isNew := scopes.ensure(tx)
	if isNew {
		scopes.eachOwn(func(s *txScope) {
			if s.tx.Value() == nil {
				p.abandon(s)
			}
		})
	}
	return scope
}

// finished returns sql.ErrTxDone if a transaction was committed or rolled back. database/sql refuses a statement of no pool,
// and before that a transaction that has ended; unlike ExecContext, Stmt does not wait for the connection first.
func finished(tx *sql.Tx) error {
	if err := tx.Stmt(new(sql.Stmt)).Close(); errors.Is(err, sql.ErrTxDone) { //nolint:sqlclosecheck // it is closed here
		return err
	}
	return nil
}

// flushScope writes what was collected in the transaction, if x is one. All that the outbox does in a transaction begins
// with it, so that what was published before is there for a settlement, a join or a claim.
func flushScope(ctx context.Context, x Executor) error {
	if tx, ok := x.(*sql.Tx); ok {
		if scope := scopes.of(tx); scope != nil {
			defer scope.forget()
			return scope.flush(ctx, tx)
		}
	}
	return nil
}

// flushTx is Publisher.Flush for a transaction.
func flushTx(ctx context.Context, tx *sql.Tx) error {
	scope := scopes.of(tx)
	if scope == nil {
		return nil
	}
	err := scope.flush(ctx, tx)
	if err != nil && scope.own && finished(tx) != nil {
		return fmt.Errorf("%s: lost if the transaction was committed: %w", namesOf(scope.drop()), err)
	}
	scope.forget()
	return err
}

func (s *txScope) add(c collected) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.collected = append(s.collected, c)
	}
	return !s.ended
}

func (s *txScope) take() []collected {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.collected
	s.collected = nil
	return taken
}

func (s *txScope) putBack(calls []collected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(calls) > 0 {
		s.collected = slices.Concat(calls, s.collected)
	}
}

// A flushed run of calls was written, or refused, in one insert.
type flushed struct {
	calls []collected
	took  time.Duration
	err   error
}

// flush writes what was collected before it was called. What cannot be written stays collected.
func (s *txScope) flush(ctx context.Context, tx *sql.Tx) error {
	var err error
	for _, f := range s.write(ctx, tx) { // hooks run here, where they may publish
		for _, c := range f.calls {
			o := c.publisher.outbox
			o.enqueued(c.call.event(len(f.calls), f.took, f.err), c.call.rows[0].CorrelationID)
			if f.err == nil {
				o.wakeAfterScope(s, c.call.topics)
			}
		}
		err = f.err
	}
	if err != nil {
		return fmt.Errorf("write what was collected: %w", err)
	}
	return nil
}

// write inserts the calls in order; consecutive calls of one Publisher share an insert. A second write waits for the first.
func (s *txScope) write(ctx context.Context, tx *sql.Tx) (done []flushed) {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	calls := s.take()
	defer func() { s.putBack(calls) }()
	for len(calls) > 0 {
		run := calls
		if end := slices.IndexFunc(calls, func(c collected) bool { return c.publisher != calls[0].publisher }); end > 0 {
			run = calls[:end]
		}
		pending := make([]*pendingCall, len(run))
		for i, c := range run {
			pending[i] = c.call
		}
		started := time.Now()
		err := run[0].publisher.outbox.insertPending(ctx, engine.Flushing{Tx: tx}, pending)
		done = append(done, flushed{run, time.Since(started), err})
		if err != nil {
			break
		}
		calls = calls[len(run):]
	}
	return done
}

// end writes everything, and lets the scope take no more.
func (s *txScope) end(ctx context.Context, tx *sql.Tx) error {
	for {
		if err := s.flush(ctx, tx); err != nil {
			return err
		}
		if s.endIfEmpty() {
			return nil
		}
	}
}

// endIfEmpty lets the scope take no more, unless something is in it, or is being written and may be put back.
func (s *txScope) endIfEmpty() bool {
	if !s.flushing.TryLock() {
		return false
	}
	defer s.flushing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || len(s.collected) == 0
	return s.ended
}

// forget removes the scope of a caller's own transaction if nothing is in it.
func (s *txScope) forget() {
	if s.own && s.endIfEmpty() {
		scopes.remove(s)
	}
}

// drop ends the scope and returns what was never written.
func (s *txScope) drop() []collected {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	scopes.remove(s)
	return s.take()
}

// abandon gives up what this Publisher has in a transaction.
func (p *Publisher) abandon(s *txScope) {
	for _, c := range s.takeOf(p) {
		p.unflushed.add(c)
	}
	s.forget()
}

// An unflushed list are calls whose transactions have ended, or whose Publisher was closed, before anybody flushed them.
type unflushed struct {
	mu    sync.Mutex
	calls []collected
	more  int // calls that are not in the list
}

// mostUnflushed is how many calls are remembered, to be named.
const mostUnflushed = 100

func (u *unflushed) add(c collected) {
	c.publisher.outbox.logger.Error("Messages were collected in a transaction and never flushed: they are lost if it was committed",
		nil, watermill.LogFields{"topic": strings.Join(c.call.topics, ", "), "messages": namesOf([]collected{c})})
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.call.messages = nil; len(u.calls) < mostUnflushed {
		u.calls = append(u.calls, c)
	} else {
		u.more++
	}
}

// error names the messages.
func (u *unflushed) error() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.calls) == 0 {
		return nil
	}
	return fmt.Errorf("outbox: nobody flushed %s and %d further calls, which are lost if their transactions were committed; "+
		"call Publisher.Flush before each commit, or use InTx", namesOf(u.calls), u.more)
}

// unflushedAtClose looks for what is left in callers' own transactions.
func (p *Publisher) unflushedAtClose() error {
	scopes.eachOwn(p.abandon)
	return p.unflushed.error()
}

func (s *txScope) takeOf(p *Publisher) (taken []collected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collected = slices.DeleteFunc(s.collected, func(c collected) bool {
		mine := c.publisher == p
		if mine {
			taken = append(taken, c)
		}
		return mine
	})
	return taken
}

const mostNames = 10

// namesOf lists messages by topic and UUID.
func namesOf(calls []collected) string {
	var list []string
	for _, c := range calls {
		for _, r := range c.call.rows {
			list = append(list, fmt.Sprintf("%s %q", r.Topic, r.UUID))
		}
	}
	if rest := len(list) - mostNames; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:mostNames], ", "), rest)
	}
	return strings.Join(list, ", ")
}
