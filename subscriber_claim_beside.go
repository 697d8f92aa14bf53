package outbox

import (
	"context"
	"time"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// claimBeside runs until Close begins: while claim waits for its answer, it makes a second claim if there is likely more, so that the
// database works for one while this process reads what the other has brought. An error is left to claim, which logs the end of it.
func (s *Subscriber) claimBeside(ctx context.Context) {
	var first int // the topic to begin with
	for {
		select {
		case <-s.closing:
			return
		case <-s.window.RoomBeside():
		}
		if flow.IsClosed(s.closing) || !s.poolHasRoom() {
			continue
		}
		allowed := s.window.AskBeside(rotate(s.topicNames(), first))
		if allowed.Limit == 0 {
			continue
		}
		sent := time.Now()
		claimed, err := s.takeBeside(ctx, s.claimParams(allowed, s.from.last()))
		if err != nil {
			s.outbox.troubles.Error(cannotClaim, err, nil)
		}
		s.dispatch(ctx, allowed, claimed, sent)
		s.pacer.Wake() // it asked for more than it brought, and claim may wait for such room
		first++
	}
}

func (s *Subscriber) takeBeside(ctx context.Context, params ClaimParams) ([]*Claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ClaimTimeout)
	defer cancel()
	sent := time.Now()
	claimed, err := s.outbox.claim(ctx, params)
	s.keeper.lost.note(params.Owner, sent, err)
	return claimed, err
}

// poolHasRoom reports whether half of the pool would still be free, which handlers need more. In a pool of three it never is.
func (s *Subscriber) poolHasRoom() bool {
	pool := s.outbox.db.Stats()
	return pool.MaxOpenConnections == 0 || pool.InUse < pool.MaxOpenConnections/2
}
