package outbox

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Pauses before locked rows are settled again.
const (
	busyPauseMin = 10 * time.Millisecond
	busyPauseMax = 500 * time.Millisecond
)

// comeBack settles rows that other transactions had locked, such as one that attaches a message to a join, until nothing is
// left and nothing more can come. No one else can take these messages meanwhile: they are settled here even after their
// leases, except when the Subscriber closes.
func (s *settler) comeBack(ctx context.Context) {
	var waiting []answer
	wait := busyPauseMin
	var closing time.Time // when the queue was closed
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for more := true; more || len(waiting) > 0; {
		var again <-chan time.Time
		if len(waiting) > 0 {
			again = timer.C
		}
		select {
		case <-s.locked.changed:
			var arrived []answer
			if arrived, more = s.locked.all(); len(arrived) > 0 && len(waiting) == 0 {
				wait = busyPauseMin
				timer.Reset(wait)
			}
			waiting = append(waiting, arrived...)
			continue
		case <-again:
		}
		waiting = s.again(ctx, waiting)
		if !more {
			if closing.IsZero() {
				closing = time.Now()
			}
			waiting = s.giveUp(waiting, ctx.Err() != nil || time.Since(closing) >= s.config.LeaseDuration)
		}
		wait = min(2*wait, busyPauseMax)
		timer.Reset(wait)
	}
}

// again tries to settle answers, and returns those whose rows are still locked.
func (s *settler) again(ctx context.Context, waiting []answer) (locked []answer) {
	for len(waiting) > 0 {
		n := min(len(waiting), maxBatch)
		locked = append(locked, s.settleOnce(ctx, waiting[:n])...)
		waiting = waiting[n:]
	}
	return locked
}

// giveUp leaves answers whose leases are over, or all of them, to the next worker.
func (s *settler) giveUp(waiting []answer, all bool) (left []answer) {
	var over []answer
	for _, a := range waiting {
		if all || s.holdings.Over(a.delivery, s.config.LeaseDuration) {
			over = append(over, a)
		} else {
			left = append(left, a)
		}
	}
	if len(over) > 0 {
		s.logger.Info("Messages were not settled before Close, because transactions have locked them; they are delivered again",
			watermill.LogFields{"count": len(over)})
		s.leave(over)
	}
	return left
}

// finished drops messages that are settled or whose leases are lost.
func (s *settler) finished(answers []answer) {
	var settled []*Delivery
	var others []answer
	for _, a := range answers {
		if a.void || a.delivery.lost.Load() {
			others = append(others, a)
		} else {
			settled = append(settled, a.delivery)
		}
	}
	s.holdings.Finish(settled...)
	s.window.Settled(settled)
	s.leave(others)
}

// leave drops messages whose leases will expire.
func (s *settler) leave(answers []answer) {
	deliveries := make([]*Delivery, len(answers))
	for i, a := range answers {
		deliveries[i] = a.delivery
	}
	s.holdings.Remove(deliveries...)
	s.window.Settled(deliveries)
}
