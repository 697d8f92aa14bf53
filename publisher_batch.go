package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/internal/limits"
)

// batches write the calls of many goroutines, each of which waits for the transaction that has its messages. One batch is
// written at a time, in the order of the calls, by a goroutine that lives as long as there is something to write.
type batches struct {
	outbox   *Outbox
	db       *sql.DB
	interval time.Duration
	messages int // the most in a batch
	bytes    int
	patience time.Duration // of close

	places  chan struct{} // one for each call that waits
	closing chan struct{}
	givenUp chan struct{} // closed if close has waited long enough
	changed chan struct{} // has room for one note: the first of a batch may no longer have to wait for others

	mu      sync.Mutex
	waiting []*batchedCall
	amount  amount         // of those
	sent    []*batchedCall // those of the batch that is being written
	idle    chan struct{}  // closed when the goroutine has ended; nil if there is none
	cancel  context.CancelFunc
	closed  bool
	hurry   bool // nobody waits for others
}

// An amount is what batches are limited by.
type amount struct{ calls, messages, bytes int }

func (a *amount) add(c *batchedCall, sign int) {
	a.calls, a.messages, a.bytes = a.calls+sign, a.messages+sign*len(c.messages), a.bytes+sign*c.bytes
}

// A batchedCall is over when done is closed.
type batchedCall struct {
	*pendingCall
	done   chan struct{}
	sent   bool // under batches.mu
	err    error
	shared int // calls in its transaction
}

func newBatches(o *Outbox, db *sql.DB, c PublisherConfig) *batches {
	return &batches{
		outbox: o, db: db, interval: c.FlushInterval, messages: c.FlushMessages, bytes: c.FlushBytes, patience: c.CloseTimeout,
		places: make(chan struct{}, c.FlushWaiting), closing: make(chan struct{}), givenUp: make(chan struct{}), changed: make(chan struct{}, 1),
	}
}

// publish writes the messages of one call. Its hook, its line of the log and its wake-up are its own: they run here, where
// they hold up nobody else.
func (b *batches) publish(ctx context.Context, messages []Message) error {
	pending, err := b.outbox.pending(messages)
	if err != nil {
		return err
	}
	c := &batchedCall{pendingCall: pending, done: make(chan struct{}), shared: 1}
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
	case <-b.givenUp:
		return 1, b.leave(c, ErrClosed)
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
	if b.idle == nil {
		ctx, cancel := context.WithCancel(context.Background()) // no caller's: each may leave without the others
		b.idle, b.cancel = make(chan struct{}), cancel
		go b.run(ctx, b.idle)
	} else if b.interval > 0 && b.full() {
		notify(b.changed)
	}
	return true
}

// leave takes a call out of its batch if that was not sent yet. After that, nobody knows.
func (b *batches) leave(c *batchedCall, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	default:
	}
	if c.sent {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, cause)
	}
	if at := slices.Index(b.waiting, c); at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		b.amount.add(c, -1)
	}
	return cause
}

func (b *batches) run(ctx context.Context, idle chan struct{}) {
	defer close(idle)
	for batch := b.next(); batch != nil; batch = b.next() {
		b.write(ctx, batch)
	}
}

// next takes a batch. It returns nil, and the goroutine has to end, if there is none.
func (b *batches) next() []*batchedCall {
	b.linger()
	// Those that were just answered publish again in a moment: let them, or every other batch has a single call.
	runtime.Gosched()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.fits()
	b.sent = b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting, b.hurry = nil, false
	}
	if n == 0 {
		b.cancel()
		b.sent, b.idle, b.cancel = nil, nil, nil
		return nil
	}
	for _, c := range b.sent {
		c.sent = true
		b.amount.add(c, -1)
	}
	return b.sent
}

// fits is how many of the waiting calls are the next batch: at least one, if there is any.
func (b *batches) fits() int {
	var sum amount
	for i, c := range b.waiting {
		if sum.add(c, 1); i > 0 && (sum.messages > b.messages || sum.bytes > b.bytes) {
			return i
		}
	}
	return len(b.waiting)
}

// full reports whether waiting for more would be of no use.
func (b *batches) full() bool {
	return b.amount.messages >= b.messages || b.amount.bytes >= b.bytes || b.amount.calls >= cap(b.places)
}

func (b *batches) unsent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// linger waits for others, for as long as the first call may wait.
func (b *batches) linger() {
	if b.interval == 0 {
		return
	}
	timer := time.NewTimer(b.interval)
	defer timer.Stop()
	for {
		in := b.due()
		if in <= 0 {
			return
		}
		timer.Reset(in)
		select {
		case <-timer.C:
		case <-b.changed:
		}
	}
}

// due is in how long the next batch is written. Later calls do not put it off.
func (b *batches) due() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hurry || b.closed || len(b.waiting) == 0 || b.full() {
		return 0
	}
	return b.interval - time.Since(b.waiting[0].at)
}

// write writes calls in one transaction. If the database refuses it, each half has another one, so that calls fail only for
// what is their own.
func (b *batches) write(ctx context.Context, calls []*batchedCall) {
	err := b.insert(ctx, calls)
	if len(calls) > 1 && b.refused(err) && ctx.Err() == nil {
		half := len(calls) / 2
		b.write(ctx, calls[:half])
		b.write(ctx, calls[half:])
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range calls {
		c.err, c.shared = err, len(calls)
		close(c.done)
	}
}

// refused reports whether err is the database's answer to some of the messages. A conflict was tried again for all.
func (b *batches) refused(err error) bool {
	return err != nil && answered(err) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrSchema) && !IsRetryable(err)
}

func (b *batches) insert(ctx context.Context, calls []*batchedCall) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limits.Publishing)
	defer cancel()
	defer func() { // a driver may have hooks: they must not end the process
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: panic while publishing: %v\n%s", ErrUnknownOutcome, reason, debug.Stack())
		}
	}()
	pending := make([]*pendingCall, len(calls))
	for i, c := range calls {
		pending[i] = c.pendingCall
	}
	return b.outbox.insertPending(ctx, b.db, pending)
}

// flush has the calls that wait now written without a delay, and waits for them.
func (b *batches) flush(ctx context.Context) error {
	b.mu.Lock()
	calls := slices.Concat(b.sent, b.waiting)
	b.hurry = len(b.waiting) > 0
	b.mu.Unlock()
	notify(b.changed)
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
	b.mu.Lock()
	b.closed = true
	idle := b.idle
	b.mu.Unlock()
	close(b.closing)
	notify(b.changed)
	if idle == nil {
		return nil
	}
	timer := time.NewTimer(b.patience)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
		return b.giveUp()
	}
}

func (b *batches) giveUp() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel == nil {
		return nil // it has ended just now
	}
	b.cancel()
	unsent, sent := b.waiting, len(b.sent)
	for _, c := range unsent {
		c.err = ErrClosed
		close(c.done)
	}
	b.waiting, b.amount = nil, amount{}
	close(b.givenUp)
	return fmt.Errorf("outbox: after %v, Close gave up %d calls that were not sent and %d whose outcome is unknown", b.patience, len(unsent), sent)
}
