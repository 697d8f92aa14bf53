package outbox

import (
	"context"
	"time"
)

const cannotClaimBeside = "Cannot claim messages beside another claim"

// claimBeside makes a second claim, until Close begins, whenever there is room beside one that is likely to be full: the database
// works for one while this process reads what the other has brought.
func (s *Subscriber) claimBeside(ctx context.Context) {
	for first := 0; ; first++ { // the topic to begin with
		select {
		case <-s.closing:
			return
		case <-s.window.Roomy():
		}
		if !s.poolHasRoom() {
			continue
		}
		allowed := s.window.AskBeside(rotate(s.topicNames(), first))
		if allowed.Limit == 0 {
			continue
		}
		sent := time.Now()
		claimed, err := s.takeBeside(ctx, s.claimParams(allowed, s.from.last()))
		s.dispatch(ctx, allowed, claimed, sent)
		if len(claimed) < allowed.Limit {
			s.pacer.Wake() // there is room again
		}
		if err != nil {
			s.outbox.troubles.Error(cannotClaimBeside, err, nil)
		} else {
			s.outbox.troubles.Over(cannotClaimBeside)
		}
	}
}

func (s *Subscriber) takeBeside(ctx context.Context, params ClaimParams) ([]*Claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ClaimTimeout)
	defer cancel()
	return s.outbox.claim(ctx, params)
}

// poolHasRoom reports whether half of the pool would still be free: handlers need it more.
func (s *Subscriber) poolHasRoom() bool {
	pool := s.outbox.db.Stats()
	return pool.MaxOpenConnections == 0 || pool.InUse < pool.MaxOpenConnections/2
}
