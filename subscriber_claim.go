package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// reapInterval is how often a claim also gives back expired leases, to take over soon from a dead worker.
const reapInterval = time.Second

const noGiveBack = -1

const cannotClaim = "Cannot claim messages, trying again"

// errNoAttemptsLeft is the LastError of a message that spent all its attempts on workers that died or lost their leases.
var errNoAttemptsLeft = errors.New("no attempts left: each worker that had the message stopped, or lost its lease")

// claim runs until Close begins: it keeps the window full while there are messages, and waits longer and longer while
// there are none.
func (s *Subscriber) claim(ctx context.Context) {
	var first int // the topic to begin with
	var reaped time.Time
	outage := flow.Outage()
	defer s.settler.pending.expect(noClaim)
	for !flow.IsClosed(s.closing) {
		topics := rotate(s.topicNames(), first)
		allowed := s.window.Allow(topics)
		if allowed.Limit == 0 {
			s.settler.pending.expect(claimSoon)
			s.pacer.Full(s.window.Freed(), s.closing)
			continue
		}
		if s.limiter != nil {
			s.settler.pending.expect(noClaim)
			if allowed = s.awaitLimiter(topics, allowed); allowed.Limit == 0 {
				continue // Close has begun
			}
		}
		s.window.Ask(allowed)
		params := s.claimParams(allowed, s.from.next(time.Now()))
		if time.Since(reaped) >= min(reapInterval, s.config.LeaseDuration) && s.keeper.leases.mayGiveBack() {
			reaped = time.Now()
			params.GiveBack = 0 // the default
		}
		s.settler.pending.expect(claimUnderWay)
		sent := time.Now()
		claimed, err := s.take(ctx, params)
		s.dispatch(ctx, allowed, claimed, sent)
		if len(claimed) == 0 {
			s.settler.pending.expect(noClaim)
		}
		if err != nil {
			if s.limiter == nil { // otherwise it logs the error and decides when to claim again
				s.outbox.troubles.Error(cannotClaim, err, nil)
				s.pacer.Pause(outage.Next(), nil, s.closing)
			}
			continue
		}
		s.outbox.troubles.Over(cannotClaim)
		switch {
		case len(claimed) == 0:
			var freed <-chan struct{}
			if len(allowed.Quotas) < len(topics) {
				freed = s.window.Freed()
			}
			s.pacer.IdleAtMost(s.from.patience(params.from, time.Now()), freed, s.closing)
		default:
			s.pacer.Busy()
			s.from.claimed(params.from, claimed)
			first++
		}
		outage.Reset()
	}
}

// awaitLimiter waits until the Limiter lets this Subscriber claim, and returns what may be claimed by then. The limit is 0 if
// Close begins first.
func (s *Subscriber) awaitLimiter(topics []string, allowed flow.Allowance) flow.Allowance {
	granted := s.limiter.Acquire(func() int { return s.window.Allow(topics).Limit }, s.closing)
	if now := s.window.Allow(topics); now.Limit > 0 {
		allowed = now
	}
	allowed.Limit = min(allowed.Limit, granted)
	return allowed
}

func (s *Subscriber) claimParams(allowed flow.Allowance, from map[string]time.Time) ClaimParams {
	return ClaimParams{Owner: base.NewOwnerToken(), Topics: quotas(allowed), Limit: allowed.Limit, Bytes: allowed.Bytes, allFit: allowed.AllFit,
		Run: s.config.MaxStreamRun, Lease: s.config.LeaseDuration, GiveBack: noGiveBack, from: from, share: s.keeper.presence.share.Load()}
}

func quotas(allowed flow.Allowance) []TopicQuota {
	quotas := make([]TopicQuota, len(allowed.Quotas))
	for i, q := range allowed.Quotas {
		quotas[i] = TopicQuota(q)
	}
	return quotas
}

// take claims within ClaimTimeout, and settles answers and renews leases in the same transaction.
func (s *Subscriber) take(ctx context.Context, params ClaimParams) (claimed []*Claimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ClaimTimeout)
	defer cancel()
	sent := time.Now()
	along, due := s.settler.takeAlong(), s.keeper.leases.early()
	alone := along.isEmpty() && len(due) == 0
	if !alone {
		claimed, err = s.together(ctx, along, due, params)
	}
	if alone || IsRetryable(err) { // locked rows hold up only settling
		claimed, err = s.outbox.claim(ctx, params)
	}
	if s.limiter != nil {
		s.limiter.Claimed(len(claimed), err)
	}
	s.keeper.lost.note(params.Owner, sent, err)
	return claimed, err
}

// together settles, renews and claims, once.
func (s *Subscriber) together(ctx context.Context, along takenAlong, due []*Delivery, params ClaimParams) ([]*Claimed, error) {
	r := &round{renewals: receiptsOf(due), claim: params}
	sent, err := s.settler.settleAlong(ctx, along, r)
	if err != nil {
		return nil, err
	}
	s.keeper.leases.answered(due, r.unrenewed, sent)
	return r.claimed, nil
}

// rotate begins with another topic each time, so that no topic is always last.
func rotate(topics []string, first int) []string {
	if len(topics) == 0 {
		return topics
	}
	at := first % len(topics)
	return append(topics[at:len(topics):len(topics)], topics[:at]...)
}
