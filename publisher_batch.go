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

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
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
	changed chan struct{} // has room for one note: the first of a batch may no longer have to wait for others
	writers int           // the most at a time
	start   func()        // starts one
	cancel  func()        // cuts them off

	mu      sync.Mutex
	waiting []*batchedCall
	amount  amount         // of those
	sent    []*batchedCall // those that are being written
	streams int            // batches among those that have messages of streams
	writing int            // writers
	idle    chan struct{}  // if not nil, closed when there are none
	closed  bool
	hurry   bool // nobody waits for others
}

// severalWriters let a batch be committed beside another, see batches.enough.
const severalWriters = 2

// worthACommit is how many calls a second writer commits by themselves, however many are being written.
const worthACommit = 8

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

// enough reports whether a second writer is of use: if few calls wait, it would only make commits smaller.
func (b *batches) enough() bool {
	return len(b.sent) > 0 && len(b.waiting) >= min(len(b.sent), worthACommit)
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
		b.waiting = slices.Delete(b.waiting, at, at+1)
		b.amount.add(c, -1)
	}
	return cause
}

func (b *batches) run(ctx context.Context) {
	for batch := b.next(); batch != nil; batch = b.next() {
		b.write(ctx, batch)
		b.written(batch)
	}
}

// written forgets a batch all of whose calls have their answers.
func (b *batches) written(batch []*batchedCall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(batch, func(c *batchedCall) bool { return c.streamed }) {
		b.streams--
	}
	b.sent = slices.DeleteFunc(b.sent, func(c *batchedCall) bool { return c.over })
}

// next takes a batch. It returns nil, and the goroutine has to end, if there is none.
func (b *batches) next() []*batchedCall {
	for {
		b.linger()
		b.gather()
		if batch, more := b.take(); !more || batch != nil {
			return batch
		}
	}
}

// gather lets others run for as long as some of them publish: those that were just answered do so again in a moment.
func (b *batches) gather() {
	for before := -1; ; {
		runtime.Gosched()
		now := b.unsent()
		if now <= before {
			return
		}
		before = now
	}
}

// take takes a batch, unless the first call of it has come since, and may wait for others.
func (b *batches) take() (batch []*batchedCall, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due() > 0 {
		return nil, true
	}
	n := b.fits()
	if n == 0 || b.writing > 1 && !b.enough() { // or the other writer takes it
		if b.writing--; b.writing == 0 && b.idle != nil {
			close(b.idle)
		}
		return nil, false
	}
	batch = b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting, b.hurry = nil, false
	}
	streamed := false
	for _, c := range batch {
		c.sent = true
		b.amount.add(c, -1)
		streamed = streamed || c.streamed
	}
	if streamed {
		b.streams++
	}
	b.sent = append(b.sent, batch...)
	return batch, true
}

// fits is how many of the waiting calls are the next batch. A call of a stream does not overtake one that is being written.
func (b *batches) fits() int {
	var sum amount
	for i, c := range b.waiting {
		sum.add(c, 1)
		if c.streamed && b.streams > 0 || i > 0 && (sum.messages > b.messages || sum.bytes > b.bytes) {
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
		b.mu.Lock()
		in := b.due()
		b.mu.Unlock()
		if in <= 0 {
			return
		}
		timer.Reset(in)
		select {
		case <-timer.C:
		case <-b.changed:
		case <-b.closing:
		}
	}
}

// due is in how long the next batch is written. Later calls do not put it off.
func (b *batches) due() time.Duration {
	if b.interval == 0 || b.hurry || b.closed || len(b.waiting) == 0 || b.full() {
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
	b.answer(calls, len(calls), err)
}

// answer ends calls that have no answer yet. They are woken without the lock, which is what they ask for next.
func (b *batches) answer(calls []*batchedCall, shared int, err error) {
	b.mu.Lock()
	ended := make([]*batchedCall, 0, len(calls))
	for _, c := range calls {
		if !c.over {
			c.over, c.shared, c.err = true, shared, err
			ended = append(ended, c)
		}
	}
	b.mu.Unlock()
	for _, c := range ended {
		close(c.done)
	}
}

// refused reports whether err is the database's answer to some of the messages. A conflict was tried again for all.
func (b *batches) refused(err error) bool {
	return err != nil && engine.FromDatabase(err) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrSchema) && !IsRetryable(err)
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
	idle := b.refuse()
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

// refuse lets nobody in from now on. It returns nil if nobody is there.
func (b *batches) refuse() (idle chan struct{}) {
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
	unsent, sent := b.waiting, slices.Clone(b.sent)
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
