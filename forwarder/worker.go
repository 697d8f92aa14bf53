package forwarder

import (
	"errors"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// maxStrikes is how often a message may fail while others get through until it, and not the broker, is taken to be the
// cause.
const maxStrikes = 3

// A worker publishes messages of one topic. It holds what cannot be published now.
type worker struct {
	*Forwarder
	items   <-chan *item
	held    []*item
	nowhere string // the destination with which the last round got nowhere, or empty
}

// run ends when Close begins. What is held then goes back.
func (w *worker) run() {
	defer w.release()
	for w.receive() && !w.isClosing() {
		through, cause := w.round()
		if cause != nil && !through && !w.breaker.wait(cause, w.closing) {
			return
		}
	}
}

var errClosing = outbox.Unavailable(errors.New("the forwarder was closed before the broker had the message"))

func (w *worker) release() {
	for _, it := range w.held {
		giveBack(it.received)
	}
	for it := range w.items { // until the subscription has ended
		giveBack(it.received)
	}
}

func giveBack(msg *message.Message) {
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		d.SetErr(errClosing)
	}
	msg.Nack()
}

// receive waits for a message if none is held, and takes what else is there, up to a batch. It answers false when the
// subscription is over.
func (w *worker) receive() bool {
	for len(w.held) < w.config.BatchSize {
		it, open := w.next()
		if !open {
			return false
		}
		if it == nil {
			return true
		}
		w.held = append(w.held, it)
	}
	return true
}

func (w *worker) next() (it *item, open bool) {
	if len(w.held) == 0 {
		it, open = <-w.items
		return it, open
	}
	select {
	case it, open = <-w.items:
		return it, open
	default:
		return nil, true
	}
}

// round tries to publish what is held, in runs of one destination, until one gets nowhere: that destination comes last the
// next time, for it may be the only one that is away. It answers whether anything got through, and why something did not.
func (w *worker) round() (through bool, cause error) {
	todo := putLast(w.nowhere, slices.DeleteFunc(w.held, lost))
	w.held, w.nowhere = nil, ""
	var later []*item
	for len(todo) > 0 && w.nowhere == "" {
		n := 1
		for n < len(todo) && todo[n].destination == todo[0].destination {
			n++
		}
		kept, last, some, err := w.try(todo[:n])
		w.held = append(w.held, kept...)
		later = append(later, last...)
		through = through || some
		if err != nil {
			cause = err
		}
		if err != nil && !some {
			w.nowhere = todo[0].destination
		}
		todo = todo[n:]
	}
	w.held = slices.Concat(w.held, todo, later)
	return through, cause
}

// putLast moves what is for a destination behind the rest, in order.
func putLast(destination string, items []*item) []*item {
	var first, last []*item
	for _, it := range items {
		if it.destination == destination {
			last = append(last, it)
		} else {
			first = append(first, it)
		}
	}
	return append(first, last...)
}

// lost is true of a message that others have by now.
func lost(it *item) bool {
	if it.received.Context().Err() == nil {
		return false
	}
	it.received.Nack()
	return true
}

// try publishes a run. What failed is kept in its place, or comes last if it is in doubt.
func (w *worker) try(run []*item) (kept, last []*item, some bool, cause error) {
	errs, exact := w.publish(run)
	if !exact {
		return w.oneByOne(run, errs[0])
	}
	for i, err := range errs {
		if again := w.answer(run[i], err); again {
			kept, cause = append(kept, run[i]), err
		}
		some = some || err == nil
	}
	return kept, nil, some, cause
}

// oneByOne follows a failure that does not tell which messages it means. The first that fails by itself ends it.
func (w *worker) oneByOne(run []*item, cause error) (kept, last []*item, some bool, _ error) {
	for i, it := range run {
		if w.isClosing() {
			return run[i:], nil, some, cause
		}
		errs, _ := w.publish(run[i : i+1])
		if again := w.answer(it, errs[0]); again {
			return run[i+1:], run[i : i+1], some, errs[0]
		}
		some = some || errs[0] == nil
	}
	return nil, nil, some, nil
}

// answer acknowledges or refuses a message, or answers that it is to be tried again.
func (w *worker) answer(it *item, err error) (again bool) {
	if err == nil {
		w.breaker.succeeded()
		it.received.Ack()
		return false
	}
	switch {
	case lost(it):
		return false
	case IsRefused(err):
		w.breaker.reached()
		w.refuse(it.received, err)
		return false
	case outbox.IsPermanent(err):
		w.refuse(it.received, err)
		return false
	case outbox.IsUnavailable(err): // not this message's fault, whatever got through since
		return true
	}
	got := w.breaker.successes()
	if it.failed && got > it.seen {
		it.strikes++
	}
	it.failed, it.seen = true, got
	if it.strikes >= maxStrikes {
		w.refuse(it.received, err)
		return false
	}
	return true
}

// refuse gives a message back with the reason. The outbox spends an attempt, or fails it if the error is permanent.
func (f *Forwarder) refuse(msg *message.Message, reason error) {
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		d.SetErr(reason)
		f.logger.Error("A message is not taken", reason, watermill.LogFields{
			"topic": d.Topic(), "message_id": d.MessageID().String(), "attempt": d.Attempt(), "permanent": outbox.IsPermanent(reason)})
	}
	msg.Nack()
}
