package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// The settler looks at the handed-out messages this often: often while answers come, more and more rarely while
// handlers take their time.
const (
	sweepFast = time.Millisecond
	sweepSlow = 16 * time.Millisecond
)

// Pauses after a failed call to the database.
const (
	outagePauseMin = 50 * time.Millisecond
	outagePauseMax = 5 * time.Second
)

const cannotSettle = "Cannot settle messages, trying again"

// errNacked is the LastError of a message whose handler's error did not reach the delivery.
var errNacked = errors.New("the handler nacked the message; put middleware.Outcome first on the router to see its error here")

// A settler waits for handlers to ack or nack and settles in batches. Watermill gives each message two channels to
// listen to; a goroutine for each message would cost a third of the throughput, and so one goroutine looks through all
// that are out. A second one writes, so that batches grow while the database is busy.
type settler struct {
	outbox      *Outbox
	window      *window
	turns       Turns // nil without
	holdings    *holdings
	maxAttempts int
	backoff     Backoff
	logger      watermill.LoggerAdapter

	mu       sync.Mutex
	handed   []*Delivery // given to handlers since the last sweep
	returned []answer    // never given to a handler
	arrived  chan struct{}

	batches chan []answer
	drain   chan struct{} // closed by Close: end when nothing is out any more
	expire  chan struct{} // closed when handlers have had their time
}

// An answer is a delivery that is over, with its settlement, unless it is void: then the database is left as it is,
// because the lease is lost or the handler has settled in its own transaction.
type answer struct {
	delivery   *Delivery
	settlement Settlement
	void       bool
}

func (d *Delivery) answer(outcome Outcome, err error) answer {
	return answer{d, Settlement{Receipt: d.claimed.Receipt, Outcome: outcome, Err: err}, d.lost.Load()}
}

// watch takes over a message that was given to a handler.
func (s *settler) watch(d *Delivery) {
	s.mu.Lock()
	s.handed = append(s.handed, d)
	first := len(s.handed) == 1
	s.mu.Unlock()
	if first {
		notify(s.arrived)
	}
}

// giveBack settles messages that no handler has seen.
func (s *settler) giveBack(outcome Outcome, err error, deliveries ...*Delivery) {
	s.mu.Lock()
	for _, d := range deliveries {
		s.returned = append(s.returned, d.answer(outcome, err))
	}
	s.mu.Unlock()
	notify(s.arrived)
}

// collect runs until drain is closed and everything has been answered, or expired.
func (s *settler) collect() {
	defer close(s.batches)
	var open []*Delivery
	var pending []answer
	interval := sweepFast
	timer := time.NewTimer(interval)
	defer timer.Stop()
	drain, expire := s.drain, s.expire
	for {
		answers := s.takeReturned()
		open, answers = s.sweep(append(open, s.takeHanded()...), answers)
		if expire == nil { // it has fired
			answers = append(answers, s.expireAll(open)...)
			open = nil
		}
		s.answered(answers)
		pending = append(pending, answers...)
		if drain == nil && len(open) == 0 && len(pending) == 0 {
			return
		}
		if interval = min(2*interval, sweepSlow); len(answers) > 0 {
			interval = sweepFast
		}

		var batches chan<- []answer
		n := min(len(pending), maxBatch)
		if n > 0 {
			batches = s.batches
		}
		var tick <-chan time.Time
		if len(open) > 0 {
			timer.Reset(interval)
			tick = timer.C
		}
		select {
		case batches <- pending[:n:n]:
			pending = pending[n:]
		case <-tick:
		case <-s.arrived:
		case <-drain:
			drain = nil
		case <-expire:
			expire = nil
		}
	}
}

func (s *settler) takeHanded() []*Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	handed := s.handed
	s.handed = nil
	return handed
}

func (s *settler) takeReturned() []answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	returned := s.returned
	s.returned = nil
	return returned
}

// sweep moves what has been answered from open to answers.
func (s *settler) sweep(open []*Delivery, answers []answer) ([]*Delivery, []answer) {
	kept := open[:0]
	for _, d := range open {
		acked, nacked := d.answered()
		if !acked && !nacked {
			kept = append(kept, d)
			continue
		}
		answers = append(answers, s.decide(d, acked))
	}
	clear(open[len(kept):])
	return kept, answers
}

// answered frees the places of messages that are over, and ends their contexts.
func (s *settler) answered(answers []answer) {
	if len(answers) == 0 {
		return
	}
	deliveries := make([]*Delivery, len(answers))
	for i, a := range answers {
		deliveries[i] = a.delivery
		if a.delivery.cancel != nil {
			a.delivery.cancel()
		}
	}
	s.window.answered(deliveries)
	if s.turns != nil {
		s.turns.Answered(len(deliveries))
	}
}

// decide says what an ack or a nack means.
func (s *settler) decide(d *Delivery, acked bool) answer {
	if acked {
		a := d.answer(Ack, nil)
		a.void = a.void || d.settledInTx.Load()
		return a
	}
	reason := d.Err()
	if reason == nil {
		reason = errNacked
	}
	a := d.answer(Retry, reason)
	if IsUnavailable(reason) {
		a.settlement.Outcome = Release
	}
	if IsPermanent(reason) || a.settlement.Outcome == Retry && s.maxAttempts != -1 && d.Attempt() >= s.maxAttempts {
		a.settlement.Outcome = Fail
	} else if a.settlement.Delay = s.backoff(d.claimed.RetryCount); a.settlement.Delay <= 0 {
		a.settlement.Delay = NoDelay
	}
	s.logger.Error("Handler did not succeed", reason, d.logFields().Add(watermill.LogFields{
		"attempt": d.Attempt(), "outcome": a.settlement.Outcome.String()}))
	return a
}

// expireAll ends the contexts of handlers that did not finish in time; their messages go back.
func (s *settler) expireAll(open []*Delivery) []answer {
	var answers []answer
	for _, d := range open {
		s.logger.Info("Handler did not finish before DrainTimeout, releasing its message", d.logFields())
		answers = append(answers, d.answer(Release, nil))
	}
	return answers
}

// write settles the batches until there are no more. While the database is away it tries again, until ctx ends: the
// leases then run out, and the messages are delivered again.
func (s *settler) write(ctx context.Context) {
	for batch := range s.batches {
		settlements := make([]Settlement, 0, len(batch))
		deliveries := make([]*Delivery, len(batch))
		for i, a := range batch {
			deliveries[i] = a.delivery
			if !a.void {
				settlements = append(settlements, a.settlement)
			}
		}
		s.settle(ctx, settlements)
		s.holdings.remove(deliveries)
		s.window.settled(len(batch))
	}
}

func (s *settler) settle(ctx context.Context, settlements []Settlement) {
	if len(settlements) == 0 {
		return
	}
	for wait := outagePauseMin; ; wait = min(2*wait, outagePauseMax) {
		refused, err := s.outbox.settle(ctx, s.outbox.db, settlements)
		if err == nil {
			s.outbox.troubles.Over(cannotSettle)
			if len(refused) > 0 {
				s.logger.Info("Leases were lost before the messages were settled; they are delivered again",
					watermill.LogFields{"count": len(refused), "first_work_item_id": refused[0].Seq})
			}
			return
		}
		s.outbox.troubles.Error(cannotSettle, err, watermill.LogFields{"count": len(settlements)})
		if pause(ctx, wait) != nil {
			s.outbox.troubles.Error("Messages were not settled before Close; they are delivered again when their leases expire",
				fmt.Errorf("%w: %w", context.Cause(ctx), err), watermill.LogFields{"count": len(settlements)})
			return
		}
	}
}

func (d *Delivery) logFields() watermill.LogFields {
	return watermill.LogFields{"topic": d.Topic(), "message_id": d.MessageID().String(), "message_uuid": d.claimed.UUID}
}
