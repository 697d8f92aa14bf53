package forwarder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// maxStrikes is how often a message may fail while others get through before the message, and not the broker, counts as the
// cause.
const maxStrikes = 3

// A worker publishes the messages of one topic. One goroutine publishes new messages and another retries those that failed,
// so that neither waits for the other.
type worker struct {
	*Forwarder
	items   <-chan *item
	waiting *waiting
	looking bool // whether others get through
}

// run ends when Close begins. Held messages go back.
func (w *worker) run() {
	done := make(chan struct{})
	go func() { // ended before run is
		defer close(done)
		w.retry()
	}()
	for batch := w.receive(); len(batch) > 0; batch = w.receive() {
		w.waiting.forget(batch[0].claim)
		for _, it := range w.advance(batch) {
			giveBack(it.received)
		}
	}
	<-done
	for _, it := range w.waiting.takeAll() {
		giveBack(it.received)
	}
	for it := range w.items { // until the subscription has ended
		giveBack(it.received)
	}
}

var errClosing = outbox.Unavailable(errors.New("the forwarder was closed before the broker had the message"))

func giveBack(msg *message.Message) {
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		d.SetErr(errClosing)
	}
	msg.Nack()
}

// receive waits for a message and takes whatever else has arrived, up to a batch plus the messages that must wait for
// earlier ones. It returns none once Close has begun.
func (w *worker) receive() (batch []*item) {
	var bytes int64
	for free := 0; free < w.config.BatchSize && bytes < w.config.BatchBytes; {
		it, open := w.next(len(batch) == 0)
		if !open || w.isClosing() {
			if it != nil {
				batch = append(batch, it)
			}
			for _, it := range batch {
				giveBack(it.received)
			}
			return nil
		}
		if it == nil {
			break
		}
		batch = append(batch, it)
		if !w.waiting.blocks(it) {
			free, bytes = free+1, bytes+it.size
		}
	}
	return batch
}

func (w *worker) next(wait bool) (it *item, open bool) {
	if wait {
		select {
		case it, open = <-w.items:
			return it, open
		case <-w.closing:
			return nil, false
		}
	}
	select {
	case it, open = <-w.items:
		return it, open
	default:
		return nil, true
	}
}

// advance publishes the messages that need not wait for earlier ones, by destination. It returns what is left on Close.
func (w *worker) advance(batch []*item) (left []*item) {
	w.looking = false
	var destinations []string
	runs := map[string][]*item{}
	for _, it := range batch {
		if w.goesBack(it) {
			continue
		}
		if it.lane.destination == "" {
			w.breaker.trouble(it.err)
			w.refuse(it, it.err)
			continue
		}
		if runs[it.lane.destination] == nil {
			destinations = append(destinations, it.lane.destination)
		}
		runs[it.lane.destination] = append(runs[it.lane.destination], it)
	}
	for _, destination := range destinations {
		goes, stays := w.part(runs[destination])
		if w.isClosing() {
			left = append(left, runs[destination]...)
			continue
		}
		// Publish what can go before holding the rest: if it gets through, the broker is not entirely away.
		left = append(left, w.publishOrHold(goes)...)
		for _, it := range stays {
			if !w.hold(it, itsLane, time.Now()) {
				left = append(left, it)
			}
		}
	}
	return left
}

// part separates the messages whose streams are free from those that must wait behind others. A concurrent retry splits no
// stream.
func (w *worker) part(batch []*item) (goes, stays []*item) {
	free := map[lane]bool{}
	for _, it := range batch {
		is, known := free[it.lane]
		if !known {
			is = !w.waiting.blocks(it)
		}
		free[it.lane] = is
		if is {
			goes = append(goes, it)
		} else {
			stays = append(stays, it)
		}
	}
	return goes, stays
}

func (w *worker) publishOrHold(run []*item) (left []*item) {
	if len(run) == 0 {
		return nil
	}
	tried := time.Now() // whatever gets through together with the first failure came after it
	failed, through, cause := w.try(run)
	if cause != nil && !through && !w.isClosing() {
		w.breaker.failed(cause)
	}
	for _, it := range failed {
		if !w.hold(it, blockedBy(it, through), tried) {
			left = append(left, it)
		}
	}
	return left
}

// hold keeps a message that cannot be published now. Once many wait while others get through, the message goes back to the
// outbox for a while, with the rest of its stream. While nothing gets through, hold waits for room and nothing more is
// claimed, except for an occasional batch to see whether others would get through. It returns false on Close.
func (w *worker) hold(it *item, what blocking, tried time.Time) bool {
	var look <-chan time.Time
	for {
		added, stopped := w.waiting.add(it, what, tried)
		if added {
			return true
		}
		since := w.waiting.since(it.lane.destination, tried)
		if stopped || w.looking || w.breaker.partial(since) {
			w.park(it, since)
			return true
		}
		if look == nil {
			timer := time.NewTimer(max(lookAround, w.config.RetryMax))
			defer timer.Stop()
			look = timer.C
		}
		select {
		case <-w.waiting.room:
		case <-w.breaker.closes():
		case <-look:
			w.looking = true // the rest of the batch goes back too, to make room for another
		case <-w.closing:
			return false
		}
	}
}

// lookAround is the shortest time between two batches that go back in an outage so that other messages are tried.
const lookAround = 10 * time.Second

// goesBack gives a message back whose context has ended: another worker may have it by now, or MaxHandlerTime is over. The latter
// spends an attempt whatever the last error is marked as, so only its text is passed on. Of a claim, the first message of a stream
// pays, and the rest goes back with it: it was not tried.
func (w *worker) goesBack(it *item) bool {
	ctx := it.received.Context()
	switch {
	case ctx.Err() == nil:
		return false
	case !w.waiting.stop(it):
		w.park(it, time.Now())
		return true
	}
	reason := context.Cause(ctx)
	if it.err != nil && !errors.Is(it.err, reason) {
		reason = fmt.Errorf("%w; last error: %v", reason, it.err) //nolint:errorlint // without its marks
	}
	if d, ok := outbox.DeliveryFrom(ctx); ok {
		d.SetErr(reason)
	}
	it.received.Nack()
	return true
}

// try publishes a run. It returns the failed messages in order, doubtful ones last.
func (w *worker) try(run []*item) (failed []*item, through bool, cause error) {
	errs, exact := w.publish(run)
	if !exact {
		return w.oneByOne(run, errs[0])
	}
	for i, err := range errs {
		if err != nil && w.waiting.isStopped(run[i]) {
			w.park(run[i], time.Now())
			continue
		}
		if again := w.answer(run[i], err); again {
			failed, cause = append(failed, run[i]), err
		}
		through = through || err == nil
	}
	return failed, through, cause
}

// oneByOne follows a failure that does not say which messages failed. It stops at the first message that fails alone.
func (w *worker) oneByOne(run []*item, cause error) (failed []*item, through bool, _ error) {
	for i, it := range run {
		if w.isClosing() {
			return run[i:], through, cause
		}
		if w.waiting.isStopped(it) {
			w.park(it, time.Now())
			continue
		}
		errs, _ := w.publish(run[i : i+1])
		if again := w.answer(it, errs[0]); again {
			for _, rest := range run[i+1:] {
				rest.err = errs[0]
			}
			if base.IsUnavailable(errs[0]) { // its stream waits for it
				return run[i:], through, errs[0]
			}
			return moveBehind(run[i:], run[i:i+1]), through, errs[0]
		}
		through = through || errs[0] == nil
	}
	return nil, through, nil
}

// answer acknowledges or refuses a message, or reports that it must be retried.
func (w *worker) answer(it *item, err error) (again bool) {
	it.err = err
	if err == nil {
		w.breaker.succeeded()
		w.mark(it)
		it.received.Ack()
		return false
	}
	w.breaker.trouble(err)
	switch {
	case w.goesBack(it):
		return false
	case IsRefused(err):
		w.breaker.reached()
		w.refuse(it, err)
		return false
	case outbox.IsPermanent(err):
		w.refuse(it, err)
		return false
	case base.IsUnavailable(err): // not this message's fault, whatever got through since
		return true
	}
	got := w.breaker.successes()
	if it.failed && got > it.seen {
		it.strikes++
	}
	it.failed, it.seen = true, got
	if it.strikes >= maxStrikes {
		w.refuse(it, err)
		return false
	}
	return true
}

// mark has the stage Published saved with the acknowledgement.
func (w *worker) mark(it *item) {
	if d, ok := outbox.DeliveryFrom(it.received.Context()); ok && w.config.MarkPublished {
		seam.Stages(d).Add(base.StagePublished)
	}
}

// refuse gives a message back with the reason. The outbox spends an attempt, or fails it if the error is permanent. The
// unpublished rest of its claim in the same stream goes back too.
func (w *worker) refuse(it *item, reason error) {
	w.waiting.stop(it)
	msg := it.received
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		d.SetErr(reason)
		w.logger.Error("A message was refused", reason, watermill.LogFields{
			"topic": d.Topic(), "message_id": d.MessageID().String(), "attempt": d.Attempt(), "permanent": outbox.IsPermanent(reason)})
	}
	msg.Nack()
}
