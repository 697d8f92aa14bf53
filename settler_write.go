package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/limits"
)

// maxWrites is how many batches are settled at once, at most. There is one as a rule; others begin beside one that is slow,
// so that no connection that hangs holds up what is settled after it.
const (
	maxWrites = 4
	slowWrite = 250 * time.Millisecond
)

// write settles the batches until there are no more.
func (s *settler) write(ctx context.Context) {
	var writes sync.WaitGroup
	defer writes.Wait()
	free := make(chan struct{}, maxWrites)
	slow := time.NewTimer(slowWrite)
	defer slow.Stop()
	for batch := range s.batches {
		free <- struct{}{}
		done := make(chan struct{})
		writes.Go(func() {
			defer func() { <-free }()
			defer close(done)
			s.writeBatch(ctx, batch)
		})
		slow.Reset(slowWrite)
		select {
		case <-done:
		case <-slow.C:
		}
	}
}

func (s *settler) writeBatch(ctx context.Context, batch []answer) {
	valid := make([]answer, 0, len(batch))
	deliveries := make([]*Delivery, len(batch))
	for i, a := range batch {
		deliveries[i] = a.delivery
		if !a.void {
			valid = append(valid, a)
		}
	}
	s.settle(ctx, valid, false)
	s.holdings.remove(deliveries...)
	s.window.settled(len(batch))
}

// settle writes a batch. While the database is away it tries again, until ctx ends: the leases then run out, and the
// messages are delivered again. A batch that takes too long is tried again in halves, in case it is too much at once.
// unsure says that a try before may have settled some, and only its answer was lost.
func (s *settler) settle(ctx context.Context, batch []answer, unsure bool) {
	if len(batch) == 0 {
		return
	}
	for wait := outagePauseMin; ; wait = min(2*wait, outagePauseMax) {
		err := s.try(ctx, batch, unsure)
		if err == nil {
			s.outbox.troubles.Over(cannotSettle)
			return
		}
		s.outbox.troubles.Error(cannotSettle, err, watermill.LogFields{"count": len(batch)})
		if pause(ctx, wait) != nil {
			s.outbox.troubles.Error("Messages were not settled before Close; they are delivered again when their leases expire",
				fmt.Errorf("%w: %w", context.Cause(ctx), err), watermill.LogFields{"count": len(batch)})
			return
		}
		unsure = true
		if half := len(batch) / 2; half > 0 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errNoConnection) {
			s.settle(ctx, batch[:half], true)
			batch = batch[half:]
		}
	}
}

// try settles a batch once, within its time.
func (s *settler) try(ctx context.Context, batch []answer, unsure bool) error {
	settlements := make([]Settlement, len(batch))
	for i, a := range batch {
		settlements[i] = a.settlement
	}
	started := time.Now()
	limit := limits.Settling(s.config.LeaseDuration)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var refused []Receipt
	err := s.spare.run(limited, limit/4, func(x Executor) (err error) {
		refused, err = s.outbox.settle(limited, x, settlements)
		return err
	})
	event := SettleEvent{Store: s.config.Store, Outcomes: outcomes(settlements), Err: err}
	if err == nil {
		s.sortOut(batch, refused, unsure, &event)
	}
	event.Took = time.Since(started)
	s.config.Hooks.settled(event)
	return err
}

// sortOut says what it means that some were not held any more.
func (s *settler) sortOut(batch []answer, refused []Receipt, unsure bool, event *SettleEvent) {
	if len(refused) == 0 {
		return
	}
	byReceipt := make(map[Receipt]answer, len(batch))
	for _, a := range batch {
		byReceipt[a.settlement.Receipt] = a
	}
	var first WorkItemID
	for _, receipt := range refused {
		a := byReceipt[receipt]
		switch inTx := a.delivery.settledInTx.Load(); {
		case inTx != nil: // the handler's own transaction was committed
			event.Outcomes[a.settlement.Outcome]--
			event.Outcomes[*inTx]++
		case unsure:
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
		s.logger.Info("Messages were no longer held when they were settled again, after an answer was lost: the first try has settled them, or their leases were lost",
			watermill.LogFields{"count": event.Unknown})
	}
}
