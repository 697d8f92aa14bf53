package outbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
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
	var waiting []*answer
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
			var arrived []*answer
			if arrived, more = s.locked.all(); len(arrived) > 0 && len(waiting) == 0 {
				wait = busyPauseMin
				timer.Reset(wait)
			}
			waiting = append(waiting, arrived...)
			continue
		case <-again:
		}
		tried := waiting
		waiting = s.again(ctx, tried)
		s.stuck.remove(without(tried, waiting))
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

// again tries to settle answers, and returns those that have to wait still.
func (s *settler) again(ctx context.Context, waiting []*answer) (locked []*answer) {
	slices.SortFunc(waiting, func(a, b *answer) int {
		return cmp.Compare(a.delivery.claimed.Receipt.Seq, b.delivery.claimed.Receipt.Seq)
	})
	stuck := newStuck()
	for batch := range slices.Chunk(waiting, maxBatch) {
		free, behind := stuck.split(batch)
		behind = append(behind, s.settleOnce(ctx, free)...)
		stuck.add(behind)
		locked = append(locked, behind...)
	}
	return locked
}

// comeBackTo leaves answers to comeBack.
func (s *settler) comeBackTo(busy []*answer) {
	s.stuck.add(busy)
	s.locked.add(busy...)
}

// stuck are the streams with answers whose rows are locked. What is behind these is settled after them: if the process dies, no
// message is settled before its predecessor. It is safe for concurrent use.
type stuck struct {
	mu      sync.Mutex
	answers map[streamName]int
}

func newStuck() *stuck { return &stuck{answers: map[streamName]int{}} }

func (s *stuck) add(answers []*answer)    { s.count(answers, 1) }
func (s *stuck) remove(answers []*answer) { s.count(answers, -1) }

func (s *stuck) count(answers []*answer, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range answers {
		if a.delivery.StreamKey() == "" {
			continue
		}
		stream := a.delivery.stream()
		if s.answers[stream] += by; s.answers[stream] == 0 {
			delete(s.answers, stream)
		}
	}
}

// split returns the answers of other streams, and those that have to wait.
func (s *stuck) split(answers []*answer) (free, behind []*answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) == 0 {
		return answers, nil
	}
	for _, a := range answers {
		if a.delivery.StreamKey() != "" && s.answers[a.delivery.stream()] > 0 {
			behind = append(behind, a)
		} else {
			free = append(free, a)
		}
	}
	return free, behind
}

// giveUp leaves answers whose leases are over, or all of them, to the next worker.
func (s *settler) giveUp(waiting []*answer, all bool) (left []*answer) {
	var over []*answer
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
		s.stuck.remove(over)
		s.leave(over)
	}
	return left
}

// finished drops messages that are settled or whose leases are lost.
func (s *settler) finished(answers []*answer) {
	var settled []*Delivery
	var others []*answer
	for _, a := range answers {
		a.delivery.settled.Store(true)
		if a.delivery.lost.Load() {
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
func (s *settler) leave(answers []*answer) {
	deliveries := make([]*Delivery, len(answers))
	for i, a := range answers {
		deliveries[i] = a.delivery
	}
	s.holdings.Remove(deliveries...)
	s.window.Settled(deliveries)
}
