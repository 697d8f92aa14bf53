package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// severalWriters let a batch be committed beside another, see batches.enough.
const severalWriters = 2

// worthACommit is how many calls a second writer commits by themselves, however many are being written.
const worthACommit = 8

// A runningBatch is being written.
type runningBatch struct {
	calls    []*batchedCall
	streamed bool // one of them has messages of streams
	since    time.Time
	slow     *time.Timer // has calls that wait written beside it; nil if there can be only one writer
}

// enough reports whether a writer beside another is of use: if few calls wait, it would only make commits smaller, unless the
// other one hangs.
func (b *batches) enough() bool {
	if len(b.running) == 0 || b.fits(1) == 0 {
		return false
	}
	inTime := 0
	for _, r := range b.running {
		if time.Since(r.since) < slowWrite {
			inTime += len(r.calls)
		}
	}
	return len(b.waiting) >= min(inTime, worthACommit)
}

// help starts a writer for calls that wait for a slow one.
func (b *batches) help() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writing < b.writers && b.enough() {
		b.writing++
		b.start()
	}
}

func (b *batches) run(ctx context.Context) {
	for batch := b.next(); batch != nil; batch = b.next() {
		b.write(ctx, batch.calls)
		b.written(batch)
	}
}

// written forgets a batch all of whose calls have their answers.
func (b *batches) written(batch *runningBatch) {
	if batch.slow != nil {
		batch.slow.Stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = slices.DeleteFunc(b.running, func(r *runningBatch) bool { return r == batch })
}

// next takes a batch. It returns nil, and the goroutine has to end, if there is none.
func (b *batches) next() *runningBatch {
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
func (b *batches) take() (batch *runningBatch, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due() > 0 {
		return nil, true
	}
	n := b.fits(len(b.waiting))
	if n == 0 || b.writing > 1 && !b.enough() { // or the other writer takes it
		if b.writing--; b.writing == 0 && b.idle != nil {
			close(b.idle)
		}
		return nil, false
	}
	batch = &runningBatch{calls: b.waiting[:n:n], since: time.Now()}
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting, b.hurry = nil, false
	}
	for _, c := range batch.calls {
		c.sent = true
		b.amount.add(c, -1)
		batch.streamed = batch.streamed || c.streamed
	}
	b.running = append(b.running, batch)
	if b.writers > 1 {
		batch.slow = time.AfterFunc(slowWrite, b.help)
	}
	return batch, true
}

// fits is how many of the first n waiting calls can be in the next batch. A call of a stream does not overtake one that is
// being written.
func (b *batches) fits(n int) int {
	streaming := slices.ContainsFunc(b.running, func(r *runningBatch) bool { return r.streamed })
	var sum amount
	for i, c := range b.waiting[:min(n, len(b.waiting))] {
		sum.add(c, 1)
		if c.streamed && streaming || i > 0 && (sum.messages > b.messages || sum.bytes > b.bytes) {
			return i
		}
	}
	return min(n, len(b.waiting))
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

// write writes calls in one transaction. If the database rejects some of the messages, each half has another one, so that
// calls fail only for what is their own.
func (b *batches) write(ctx context.Context, calls []*batchedCall) {
	err := b.insert(ctx, calls)
	if len(calls) > 1 && b.isRejection(err) && ctx.Err() == nil {
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

// isRejection reports whether some of the messages are to blame for err. Of other errors a smaller batch would have no fewer,
// and a conflict was tried again for all.
func (b *batches) isRejection(err error) bool {
	rejected := errors.Is(err, ErrDuplicateID) || b.outbox.engine.Dialect.Classify(err) == dialect.ErrorData
	return rejected && !errors.Is(err, ErrUnknownOutcome)
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
	err = b.outbox.insertPending(ctx, b.db, pending)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) { // it looks like one of the callers' contexts
		err = fmt.Errorf("the database did not answer within %v: %w", limits.Publishing, err)
	}
	return err
}
