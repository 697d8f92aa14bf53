package outbox

import (
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// errHandlerTime is the LastError of a message whose handler hangs.
var errHandlerTime = errors.New("the handler did not return within SubscriberConfig.MaxHandlerTime")

const cannotSettle = "Cannot settle messages, trying again"

// errNacked is the LastError of a message whose handler's error did not reach the delivery.
var errNacked = errors.New("the handler nacked the message; put middleware.Outcome first on the router to see its error here")

// A settler waits for handlers to ack or nack, and settles in batches. Watermill gives each message two channels to
// listen to. A goroutine for each message would cost a third of the throughput, so one goroutine checks all messages that
// are out. Claims take answers along; a second goroutine writes the others, so that batches grow while the database is
// busy: see subscriber_settle_write.go.
type settler struct {
	outbox   *Outbox
	window   *flow.Window[*Delivery]
	holdings *flow.Leases[*Delivery]
	spare    *spare
	remover  *remover
	runs     *runs
	hand     func(*Delivery) bool // hands out the next message of a stream
	freed    func()               // called when a stream may be claimed again
	config   SubscriberConfig
	limiter  seam.Limiter // may be nil
	logger   watermill.LoggerAdapter

	mu       sync.Mutex
	handed   []*Delivery // given to handlers since the last sweep
	prompt   []*Delivery // messages of streams, answered since the last sweep
	returned []*answer   // never given to a handler
	arrived  chan struct{}
	prompted chan struct{}

	pending *answerQueue  // to be settled, by the next claim or the writer
	ordered *answerQueue  // those of streams, one batch after the other
	locked  *answerQueue  // others had locked the rows
	stuck   *stuck        // the streams of those
	drain   chan struct{} // closed by Close: end once nothing is out
	expire  chan struct{} // closed when handlers have run out of time
}

// An answer is a delivery that is over, with its settlement. If the lease is lost, it is not written to the database.
type answer struct {
	delivery   *Delivery
	settlement Settlement
	endsRun    bool // it is the last of its run; set before it is queued
	unsure     bool // it may already be settled: the answer to a try was lost
}

func (d *Delivery) answer(outcome Outcome, err error) *answer {
	return &answer{delivery: d, settlement: Settlement{Receipt: d.claimed.Receipt, Outcome: outcome, Err: err,
		Stages: base.Stages(d.stages.toSettle.Load())}}
}

// inTx returns the outcome by SettleTx, or nil. Only an ack says that its transaction was committed: a handler nacks if that
// failed, or if it does not know.
func (a *answer) inTx() *Outcome {
	if a.settlement.Outcome != Ack {
		return nil
	}
	return a.delivery.settledInTx.Load()
}

// outcome is what the answer means: what SettleTx has done, or what is to be settled.
func (a *answer) outcome() Outcome {
	if inTx := a.inTx(); inTx != nil {
		return *inTx
	}
	return a.settlement.Outcome
}

// watch takes over a message that was given to a handler.
func (s *settler) watch(d *Delivery) {
	d.handed = time.Now()
	s.mu.Lock()
	s.handed = append(s.handed, d)
	first := len(s.handed) == 1
	s.mu.Unlock()
	if d.StreamKey() != "" && !s.config.PipelineStreams {
		go s.await(d)
	}
	if first {
		flow.Notify(s.arrived)
	}
}

// await has a message of a stream checked as soon as it is answered, because the next one waits for it.
func (s *settler) await(d *Delivery) {
	select {
	case <-d.msg.Acked():
	case <-d.msg.Nacked():
	case <-d.ended: // no need to wait for its answer
		return
	}
	s.mu.Lock()
	s.prompt = append(s.prompt, d)
	s.mu.Unlock()
	flow.Notify(s.prompted)
}

// giveBack settles messages that no handler had.
func (s *settler) giveBack(outcome Outcome, err error, deliveries ...*Delivery) {
	s.mu.Lock()
	for _, d := range deliveries {
		s.returned = append(s.returned, d.answer(outcome, err))
	}
	s.mu.Unlock()
	flow.Notify(s.arrived)
}

// collect runs until drain is closed and everything has been answered, or expired.
func (s *settler) collect() {
	defer s.pending.close()
	defer s.ordered.close()
	var open []*Delivery
	sweeps := newSweepTimer()
	defer sweeps.stop()
	drain, expire := s.drain, s.expire // nil once they are closed
	due := true                        // for a sweep: it was not only a stream that woke the loop
	for {
		draining, expired := drain == nil, expire == nil
		handed, prompt, answers := s.takeAll()
		open = append(open, handed...)
		for _, d := range prompt {
			answers = s.take(d, answers)
		}
		if due || expired {
			open, answers = s.sweep(open, answers)
		}
		if expired {
			answers = append(answers, s.expireAll(open)...)
			open = nil
		}
		answers = s.followers(answers)
		s.wrapUp(answers)
		if draining && len(open) == 0 && s.isIdle() {
			return
		}
		sweeps.set(due, len(open) > 0, len(answers) > 0)
		due = true
		select {
		case <-sweeps.next:
		case <-s.arrived:
		case <-s.prompted:
			due = false
		case <-drain:
			drain = nil
		case <-expire:
			expire = nil
		}
	}
}

// takeAll takes what has arrived since the last call.
func (s *settler) takeAll() (handed, prompt []*Delivery, returned []*answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	handed, prompt, returned = s.handed, s.prompt, s.returned
	s.handed, s.prompt, s.returned = nil, nil, nil
	return handed, prompt, returned
}

// isIdle reports whether nothing has arrived since takeAll: followers may have given back the rest of a stream.
func (s *settler) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.handed)+len(s.prompt)+len(s.returned) == 0
}

// take adds the answer to a message, once.
func (s *settler) take(d *Delivery, answers []*answer) []*answer {
	acked, nacked := d.answered()
	if d.over || !acked && !nacked {
		return answers
	}
	d.over = true
	return append(answers, s.decide(d, acked))
}

// sweep moves answered messages from open to answers.
func (s *settler) sweep(open []*Delivery, answers []*answer) ([]*Delivery, []*answer) {
	kept := open[:0]
	now := time.Now()
	for _, d := range open {
		if answers = s.take(d, answers); !d.over && s.leftBehind(d, now) {
			d.over = true
			answers = append(answers, s.takeAway(d, now))
		}
		if !d.over {
			kept = append(kept, d)
		}
	}
	clear(open[len(kept):])
	return kept, answers
}

// followers hands out the next messages in the streams of answered ones, or gives them back: a message must not overtake a
// predecessor that has not ended.
func (s *settler) followers(answers []*answer) []*answer {
	for _, a := range answers {
		outcome := a.outcome()
		goesOn := !a.delivery.lost.Load() && (outcome == Ack || outcome == Fail && s.config.OnStreamFailure == DeadLetter)
		next, back, ended := s.runs.after(a.delivery, goesOn)
		if next != nil {
			if a.inTx() == nil {
				next.ahead = a
			}
			s.hand(next)
		}
		a.endsRun = ended
		for _, d := range back {
			answers = append(answers, d.answer(Release, nil))
		}
	}
	return answers
}

// wrapUp ends the contexts of messages, queues their settlements, and then frees their places: that wakes a claim, which
// takes the settlements along.
func (s *settler) wrapUp(answers []*answer) {
	if len(answers) == 0 {
		return
	}
	deliveries := make([]*Delivery, len(answers))
	for i, a := range answers {
		deliveries[i] = a.delivery
		a.delivery.close()
		s.tell(a)
		s.warn(a)
	}
	s.settleSoon(answers)
	s.window.Answered(deliveries)
	if s.limiter != nil {
		s.limiter.Free(len(deliveries))
	}
}

// settleSoon queues answers to be settled. When a run has ended, its stream may be claimed again, by the same claim that takes
// the answers along.
func (s *settler) settleSoon(answers []*answer) {
	others := make([]*answer, 0, len(answers))
	var ordered []*answer
	ended := false
	for _, a := range answers {
		if a.delivery.StreamKey() == "" {
			others = append(others, a)
		} else {
			ordered = append(ordered, a)
			ended = ended || a.endsRun
		}
	}
	s.pending.add(others...)
	s.ordered.add(ordered...)
	if ended {
		s.ordered.soon()
		s.freed()
	}
}

// tell calls OnHandled if a handler had the message.
func (s *settler) tell(a *answer) {
	d := a.delivery
	if d.handed.IsZero() {
		return
	}
	e := HandledEvent{Store: s.config.Store, Topic: d.Topic(), MessageID: d.MessageID(), Attempt: d.Attempt(),
		Outcome: a.outcome(), Took: time.Since(d.handed), Wait: d.waited(d.handed), Err: a.settlement.Err}
	s.config.Hooks.handled(e)
}

// warn logs that a stream is blocked from now on: nothing else in the log says that messages wait.
func (s *settler) warn(a *answer) {
	if a.outcome() == Fail && !a.delivery.lost.Load() && a.delivery.StreamKey() != "" && s.config.OnStreamFailure == Block {
		s.logger.Error("A message that failed for good blocks its stream; requeue it with RequeueStream, or go on with SkipHead",
			a.settlement.Err, a.delivery.logFields())
	}
}

// decide says what an ack or a nack means.
func (s *settler) decide(d *Delivery, acked bool) *answer {
	if d.lapsed.Load() {
		// The handler's context ended before the answer, so even an ack may stand for unfinished work.
		return d.answer(Release, nil)
	}
	if acked {
		return d.answer(Ack, nil) // even after SettleTx, whose transaction may have been rolled back
	}
	reason := d.reason()
	if reason == nil {
		reason = errNacked
	}
	if errors.Is(reason, errPostponed) {
		a := d.answer(Release, nil)
		a.settlement.Delay = d.ownDelay()
		return a
	}
	a := s.failed(d, reason)
	if a.settlement.Outcome == Release && d.ownDelay() > 0 { // whoever chose the delay knows about the outage, and logs it
		return a
	}
	s.logger.Error("Handler did not succeed", reason, d.logFields().Add(watermill.LogFields{
		"attempt": d.Attempt(), "outcome": a.settlement.Outcome.String()}))
	return a
}

// failed returns the settlement of a message after an error.
func (s *settler) failed(d *Delivery, reason error) *answer {
	a := d.answer(Retry, reason)
	if base.IsUnavailable(reason) {
		a.settlement.Outcome = Release
	}
	if IsPermanent(reason) || a.settlement.Outcome == Retry && s.config.MaxAttempts != -1 && d.Attempt() >= s.config.MaxAttempts {
		a.settlement.Outcome = Fail
	} else if a.settlement.Delay = d.ownDelay(); a.settlement.Delay > 0 {
		return a
	} else if a.settlement.Delay = s.config.Backoff(d.claimed.RetryCount); a.settlement.Delay <= 0 {
		a.settlement.Delay = noDelay
	}
	return a
}

// leftBehind ends the context of a handler after MaxHandlerTime, and reports whether DrainTimeout has passed since then, too.
func (s *settler) leftBehind(d *Delivery, now time.Time) bool {
	ran := now.Sub(d.handed)
	if s.config.MaxHandlerTime == never || ran < s.config.MaxHandlerTime {
		return false
	}
	d.outOfTime(s.logger)
	return ran >= s.config.MaxHandlerTime+s.config.DrainTimeout
}

// outOfTime ends the context of a handler after MaxHandlerTime, and returns false if it did so before.
func (d *Delivery) outOfTime(logger watermill.LoggerAdapter) bool {
	if d.timedOut {
		return false
	}
	d.timedOut = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.interrupt(errHandlerTime)
	logger.Error("A handler did not ack or nack within MaxHandlerTime; its context has ended", errHandlerTime, d.logFields())
	return true
}

// takeAway gives back the message of a handler that hangs.
func (s *settler) takeAway(d *Delivery, now time.Time) *answer {
	a := s.failed(d, errHandlerTime)
	s.logger.Error("A handler did not return after its context ended; its message is taken from it, and a late ack or nack will change nothing", errHandlerTime,
		d.logFields().Add(watermill.LogFields{"attempt": d.Attempt(), "outcome": a.settlement.Outcome.String()}))
	s.config.Hooks.handlerTimedOut(HandledEvent{Store: s.config.Store, Topic: d.Topic(), MessageID: d.MessageID(),
		Attempt: d.Attempt(), Outcome: a.settlement.Outcome, Took: now.Sub(d.handed), Wait: d.waited(d.handed), Err: errHandlerTime})
	return a
}

// expireAll ends the contexts of handlers that did not finish in time; their messages go back.
func (s *settler) expireAll(open []*Delivery) []*answer {
	var answers []*answer
	for _, d := range open {
		s.logger.Info("Handler did not finish in time, releasing its message", d.logFields())
		d.over = true
		answers = append(answers, d.answer(Release, nil))
	}
	return answers
}

func (d *Delivery) logFields() watermill.LogFields {
	fields := watermill.LogFields{"topic": d.Topic(), "message_id": d.MessageID().String(), "message_uuid": d.claimed.UUID}
	if group := d.Group(); group != "" {
		fields["group"] = group
	}
	if key := d.StreamKey(); key != "" {
		fields["stream_key"] = key
	}
	return fields
}
