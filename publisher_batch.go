package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// batches write the calls of many goroutines, each of which waits for the transaction that has its messages. Batches are
// taken in the order of the calls, by goroutines that live as long as there is something to write.
type batches struct {
	outbox   *Outbox
	db       *sql.DB
	interval time.Duration
	messages int // the most in a batch
	bytes    int
	patience time.Duration // of close

	places  chan struct{} // one for each call that waits
	closing chan struct{}
	changed chan struct{} // wakes a lingering writer when its batch may no longer need to wait
	writers int           // the most at a time
	start   func()        // starts one
	cancel  func()        // cuts them off

	mu      sync.Mutex
	waiting []*batchedCall
	amount  amount // of those
	running []*runningBatch
	writing int           // writers
	idle    chan struct{} // if not nil, closed when there are none
	closed  bool
	hurry   bool // Flush was called: write at once
}

// An amount is what batches are limited by.
type amount struct{ calls, messages, bytes int }

func (a *amount) add(c *batchedCall, sign int) {
	a.calls, a.messages, a.bytes = a.calls+sign, a.messages+sign*len(c.messages), a.bytes+sign*c.bytes
}

// A batchedCall is over when done is closed.
type batchedCall struct {
	*pendingCall
	done       chan struct{}
	streamed   bool // it has messages of streams
	sent, over bool // under batches.mu
	err        error
	shared     int // calls in its transaction
}

func newBatches(o *Outbox, db *sql.DB, c PublisherConfig) *batches {
	ctx, cancel := context.WithCancel(context.Background()) // no caller's: each may leave without the others
	b := &batches{
		outbox: o, db: db, interval: c.FlushInterval, messages: c.FlushMessages, bytes: c.FlushBytes, patience: c.CloseTimeout,
		places: make(chan struct{}, c.FlushWaiting), closing: make(chan struct{}), changed: make(chan struct{}, 1), writers: 1, cancel: cancel,
	}
	if o.engine.Dialect.Traits().Procedures { // SQLite has one writer at a time, and another would wait for its lock
		b.writers = severalWriters
	}
	b.start = func() { go b.run(ctx) }
	return b
}

// publish writes the messages of one call. Its hook, its line of the log and its wake-up are its own: they run here, where
// they hold up nobody else.
func (b *batches) publish(ctx context.Context, messages []Message) error {
	pending, err := b.outbox.pending(messages)
	if err != nil {
		return err
	}
	c := &batchedCall{pendingCall: pending, done: make(chan struct{}), shared: 1,
		streamed: slices.ContainsFunc(pending.rows, func(m enqueuedMessage) bool { return m.StreamID != 0 })}
	shared, err := b.wait(ctx, c)
	b.outbox.enqueued(c.event(shared, time.Since(c.at), err), c.rows[0].CorrelationID)
	switch {
	case err == nil:
		wakeStore(b.outbox.config.Store, c.topics...)
	case errors.Is(err, ErrUnknownOutcome):
		expectSoon(b.outbox.config.Store, c.topics)
	}
	return err
}

func (b *batches) wait(ctx context.Context, c *batchedCall) (shared int, err error) {
	if err := ctx.Err(); err != nil {
		return 1, err
	}
	select {
	case b.places <- struct{}{}:
		defer func() { <-b.places }()
	case <-ctx.Done():
		return 1, fmt.Errorf("wait for a place among the calls that wait: %w", ctx.Err())
	case <-b.closing:
		return 1, ErrClosed
	}
	if !b.add(c) {
		return 1, ErrClosed
	}
	select {
	case <-c.done:
		return c.shared, c.err
	case <-ctx.Done():
		return 1, b.leave(c, ctx.Err())
	}
}

// add puts a call behind the others, and sees to it that somebody writes it.
func (b *batches) add(c *batchedCall) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.waiting = append(b.waiting, c)
	b.amount.add(c, 1)
	if b.writing == 0 || b.writing < b.writers && b.enough() {
		b.writing++
		b.start()
	} else if b.interval > 0 && b.full() {
		flow.Notify(b.changed)
	}
	return true
}

// leave takes a call out of its batch if that was not sent yet. After that, nobody knows.
func (b *batches) leave(c *batchedCall, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.over {
		return c.err
	}
	if c.sent {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, cause)
	}
	if at := slices.Index(b.waiting, c); at >= 0 {
		if b.waiting = slices.Delete(b.waiting, at, at+1); len(b.waiting) == 0 {
			b.hurry = false
		}
		b.amount.add(c, -1)
		c.over, c.err = true, cause
		close(c.done) // Flush may wait for it
	}
	return cause
}

// sent are the calls that are being written and have no answer yet.
func (b *batches) sent() (calls []*batchedCall) {
	for _, r := range b.running {
		for _, c := range r.calls {
			if !c.over {
				calls = append(calls, c)
			}
		}
	}
	return calls
}

// flush has the calls that wait now written without a delay, and waits for them.
func (b *batches) flush(ctx context.Context) error {
	b.mu.Lock()
	calls := append(b.sent(), b.waiting...)
	b.hurry = len(b.waiting) > 0
	b.mu.Unlock()
	flow.Notify(b.changed)
	for _, c := range calls {
		select {
		case <-c.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the calls before: %w", ctx.Err())
		}
	}
	return nil
}

// close refuses new calls, writes those that wait, and after its patience fails the rest.
func (b *batches) close() error {
	defer b.cancel()
	close(b.closing)
	idle := b.stopAccepting()
	if idle == nil {
		return nil
	}
	flow.Notify(b.changed)
	timer := time.NewTimer(b.patience)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
		return b.giveUp()
	}
}

// stopAccepting lets nobody in from now on. It returns what is closed when all are written, or nil if nobody is there.
func (b *batches) stopAccepting() (idle chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.writing > 0 {
		b.idle = make(chan struct{})
	}
	return b.idle
}

func (b *batches) giveUp() error {
	b.mu.Lock()
	ended := b.writing == 0 // just now
	unsent, sent := b.waiting, b.sent()
	b.waiting, b.amount = nil, amount{}
	b.mu.Unlock()
	if ended {
		return nil
	}
	b.answer(unsent, 1, ErrClosed)
	b.answer(sent, 1, fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrClosed))
	return fmt.Errorf("outbox: after %v, Close gave up %d calls that were not sent and %d whose outcome is unknown",
		b.patience, len(unsent), len(sent))
}
