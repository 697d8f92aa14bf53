package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// maxWrites is the most batches that are settled at once. Usually it is one; others begin only beside a slow one, so that a
// connection that hangs does not hold up the next batches.
const (
	maxWrites = 4
	slowWrite = 250 * time.Millisecond
)

// write settles what no claim takes along, until the queues are closed and empty. Locked rows are settled in parallel.
func (s *settler) write(ctx context.Context) {
	var writes, revisits sync.WaitGroup
	revisits.Go(func() { s.comeBack(ctx) })
	defer revisits.Wait()
	defer s.locked.close()
	defer writes.Wait()
	writes.Go(func() {
		for batch := s.ordered.next(); len(batch) > 0; batch = s.ordered.next() {
			s.comeBackTo(s.settleOnce(ctx, s.ready(batch)))
			s.ordered.done()
		}
	})
	free := make(chan struct{}, maxWrites)
	slow := time.NewTimer(slowWrite)
	defer slow.Stop()
	for batch := s.pending.next(); len(batch) > 0; batch = s.pending.next() {
		free <- struct{}{}
		done := make(chan struct{})
		writes.Go(func() {
			defer func() { <-free }()
			defer close(done)
			s.comeBackTo(s.settleOnce(ctx, batch))
		})
		slow.Reset(slowWrite)
		select {
		case <-done:
		case <-slow.C:
		}
	}
}

// settleOnce settles a batch, except for rows that others have locked, which it returns.
func (s *settler) settleOnce(ctx context.Context, batch []*answer) (busy []*answer) {
	busy = s.settle(ctx, held(batch))
	s.finished(without(batch, busy))
	if slices.ContainsFunc(batch, func(a *answer) bool { return a.endsRun }) {
		s.freed()
	}
	return busy
}

// held returns the answers whose leases are not lost.
func held(batch []*answer) []*answer {
	held := make([]*answer, 0, len(batch))
	for _, a := range batch {
		if !a.delivery.lost.Load() {
			held = append(held, a)
		}
	}
	return held
}

// without returns the answers that are not among others.
func without(answers, others []*answer) []*answer {
	if len(others) == 0 {
		return answers
	}
	among := make(map[*Delivery]bool, len(others))
	for _, a := range others {
		among[a.delivery] = true
	}
	return slices.DeleteFunc(slices.Clone(answers), func(a *answer) bool { return among[a.delivery] })
}

// settle writes a batch, and returns what others have locked. While the database is down it retries, until ctx ends:
// the leases then expire, and the messages are delivered again. A batch that takes too long is retried in halves, in
// case it is too large.
func (s *settler) settle(ctx context.Context, batch []*answer) (busy []*answer) {
	if len(batch) == 0 {
		return nil
	}
	for outage := flow.Outage(); ; {
		locked, err := s.try(ctx, batch)
		if err == nil {
			s.outbox.troubles.Over(cannotSettle)
			return append(busy, locked...)
		}
		s.outbox.troubles.Error(cannotSettle, err, watermill.LogFields{"count": len(batch)})
		if flow.Pause(ctx, outage.Next()) != nil {
			s.outbox.troubles.Error("Messages were not settled before Close; they are delivered again when their leases expire",
				fmt.Errorf("%w: %w", context.Cause(ctx), err), watermill.LogFields{"count": len(batch)})
			return busy
		}
		if half := len(batch) / 2; half > 0 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errNoConnection) {
			busy = append(busy, s.settle(ctx, batch[:half])...)
			stuck := newStuck()
			stuck.add(busy)
			free, behind := stuck.split(batch[half:])
			if batch, busy = free, append(busy, behind...); len(batch) == 0 {
				return busy
			}
		}
	}
}

// try settles a batch once, with a time limit, and returns what others have locked.
func (s *settler) try(ctx context.Context, batch []*answer) (busy []*answer, err error) {
	return s.call(ctx, batch, func(ctx context.Context, x Executor, settlements []Settlement, options settleOptions) (settled, error) {
		return s.outbox.settleBatch(ctx, x, settlements, options)
	})
}

// takenAlong are the answers that are settled with a claim.
type takenAlong struct{ ordered, others []*answer }

func (t takenAlong) isEmpty() bool { return len(t.ordered)+len(t.others) == 0 }

// takeAlong takes the answers to settle with a claim.
func (s *settler) takeAlong() takenAlong {
	return takenAlong{s.takeHeld(s.ordered), s.takeHeld(s.pending)}
}

// takeHeld takes the answers of a queue that are ready to be settled.
func (s *settler) takeHeld(q *answerQueue) []*answer {
	for batch := q.takeAlong(); len(batch) > 0; batch = q.takeAlong() {
		if along := s.ready(batch); len(along) > 0 {
			return along
		}
		q.done()
	}
	return nil
}

// ready drops the answers whose leases are lost, and leaves those behind a locked row of their stream to comeBack.
func (s *settler) ready(batch []*answer) []*answer {
	along := held(batch)
	s.finished(without(batch, along))
	along, behind := s.stuck.split(along)
	s.comeBackTo(behind)
	return along
}

// settleAlong settles what takeAlong returned, once, in a round, and returns when that was sent.
func (s *settler) settleAlong(ctx context.Context, taken takenAlong, r *round) (sent time.Time, err error) {
	batch := slices.Concat(taken.ordered, taken.others)
	busy, err := s.call(ctx, batch, func(ctx context.Context, x Executor, settlements []Settlement, options settleOptions) (settled, error) {
		sent = time.Now()
		r.settlements, r.options = settlements, options
		err := s.outbox.work(ctx, x, r)
		return r.settled, err
	})
	if err != nil {
		s.ordered.putBack(batch[:len(taken.ordered)])
		s.pending.putBack(batch[len(taken.ordered):])
		return sent, err
	}
	s.finished(without(batch, busy))
	s.comeBackTo(busy)
	if len(taken.ordered) > 0 {
		s.ordered.done()
	}
	return sent, nil
}

// call settles a batch with f and a time limit, and returns what others have locked. After an error it records in the batch
// whether it may be settled nevertheless.
func (s *settler) call(ctx context.Context, batch []*answer,
	f func(context.Context, Executor, []Settlement, settleOptions) (settled, error),
) (busy []*answer, err error) {
	settlements := make([]Settlement, len(batch))
	for i, a := range batch {
		settlements[i] = a.settlement
	}
	started := time.Now()
	options := settleOptions{passOver: true, over: s.holdings.ClaimsOver()}
	limit := limits.Settling(s.config.LeaseDuration)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var result settled
	err = s.spare.run(ctx, limit/4, func(x Executor) (err error) {
		result, err = f(ctx, x, settlements, options)
		return err
	})
	event := SettleEvent{Store: s.config.Store, Outcomes: outcomes(settlements), Err: err}
	if err == nil {
		busy = s.sortOut(batch, result, &event)
		s.remover.add(result.gone)
	} else if errors.Is(err, ErrUnknownOutcome) {
		for i := range batch {
			batch[i].unsure = true
		}
	}
	event.Took = time.Since(started)
	if len(batch) > 0 {
		s.config.Hooks.settled(event)
	}
	return busy, err
}

// endClaims ends the leases of claims that the last settlements have ended, as Close has no next one to take them along. If the
// database does not answer soon, they expire.
func (s *settler) endClaims(ctx context.Context) {
	over := s.holdings.ClaimsOver()
	if len(over) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = s.spare.run(ctx, 0, func(x Executor) error {
		_, err := s.outbox.settleBatch(ctx, x, nil, settleOptions{passOver: true, over: over})
		return err
	})
}

// sortOut reports the answers that were no longer held, and returns those that others have locked.
func (s *settler) sortOut(batch []*answer, result settled, event *SettleEvent) (busy []*answer) {
	if len(result.refused)+len(result.busy) == 0 {
		return nil
	}
	byReceipt := make(map[Receipt]*answer, len(batch))
	for _, a := range batch {
		byReceipt[a.settlement.Receipt] = a
	}
	var first WorkItemID
	for _, receipt := range result.busy {
		a := byReceipt[receipt]
		busy = append(busy, a)
		event.Outcomes[a.settlement.Outcome]--
		event.Busy++
	}
	for _, receipt := range result.refused {
		a := byReceipt[receipt]
		switch inTx := a.delivery.settledInTx.Load(); {
		case inTx != nil: // the handler's own transaction was committed
			event.Outcomes[a.settlement.Outcome]--
			event.Outcomes[*inTx]++
		case a.unsure:
			event.Unknown++
		default:
			if event.Refused++; event.Refused == 1 {
				first = receipt.Seq
			}
		}
	}
	if event.Refused > 0 {
		s.logger.Info("Leases were lost before the messages were settled; they are delivered again",
			watermill.LogFields{"count": event.Refused, "first_work_item_id": first})
	}
	if event.Unknown > 0 {
		s.logger.Info("Messages were no longer held when they were settled again after a lost answer: the first try settled them, or their leases were lost",
			watermill.LogFields{"count": event.Unknown})
	}
	return busy
}
