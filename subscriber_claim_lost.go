package outbox

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

const cannotGiveBackLost = "Cannot give back the messages of a claim whose answer was lost, trying again"

// lostClaims gives back what claims hold whose answers were lost. They may have been committed, and then nobody else can have their
// messages until the leases are over, which would also cost each an attempt.
type lostClaims struct {
	outbox *Outbox
	spare  *spare
	lease  time.Duration
	commit time.Duration // a claim is not committed later than this after it was sent

	mu      sync.Mutex
	claims  map[OwnerToken]*lostClaim
	arrived chan struct{}
}

type lostClaim struct {
	sent  time.Time
	found bool // it held something
}

func newLostClaims(o *Outbox, spare *spare, config SubscriberConfig) *lostClaims {
	return &lostClaims{outbox: o, spare: spare, lease: config.LeaseDuration, commit: 2 * config.ClaimTimeout,
		claims: map[OwnerToken]*lostClaim{}, arrived: flow.NewNote()}
}

// note notes a claim, sent at the given time, if its error leaves open whether it was committed.
func (l *lostClaims) note(owner OwnerToken, sent time.Time, err error) {
	if !errors.Is(err, ErrUnknownOutcome) {
		return
	}
	l.mu.Lock()
	l.claims[owner] = &lostClaim{sent: sent}
	l.mu.Unlock()
	flow.Notify(l.arrived)
}

// run works until ctx ends. What is left then waits for its lease to be over.
func (l *lostClaims) run(ctx context.Context) {
	for {
		select {
		case <-l.arrived:
		case <-ctx.Done():
			return
		}
		for outage := flow.Outage(); l.giveBackAll(ctx); {
			if flow.Pause(ctx, outage.Next()) != nil {
				return
			}
		}
	}
}

// giveBackAll reports whether any claim must be looked at again. After an error it leaves the others to the next time.
func (l *lostClaims) giveBackAll(ctx context.Context) (again bool) {
	l.mu.Lock()
	claims := maps.Clone(l.claims)
	l.mu.Unlock()
	for owner, claim := range claims {
		held, err := l.giveBack(ctx, owner)
		claim.found = claim.found || held > 0
		age := time.Since(claim.sent)
		if age > l.lease || err == nil && held == 0 && (claim.found || age > l.commit) {
			l.mu.Lock()
			delete(l.claims, owner)
			l.mu.Unlock()
		}
		if err != nil {
			if ctx.Err() == nil {
				l.outbox.troubles.Error(cannotGiveBackLost, err, nil)
			}
			return true
		}
		l.outbox.troubles.Over(cannotGiveBackLost)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.claims) > 0
}

// giveBack releases what a claim holds, but for what others have locked, and returns how much it held. The lease stays until it is
// over: somebody may have locked what was not seen.
func (l *lostClaims) giveBack(ctx context.Context, owner OwnerToken) (held int, err error) {
	limit := limits.Settling(l.lease)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = l.spare.run(ctx, limit/4, func(x Executor) error {
		seqs, err := l.outbox.held(ctx, x, owner)
		if held = len(seqs); err != nil || held == 0 {
			return err
		}
		answer, err := l.outbox.settleBatch(ctx, x, settleAll(owner, seqs, Release, nil), settleOptions{passOver: true})
		if n := held - len(answer.busy) - len(answer.refused); err == nil && n > 0 {
			l.outbox.logger.Info("Gave back the messages of a claim whose answer was lost", watermill.LogFields{"count": n})
		}
		return err
	})
	return held, err
}

// held returns what a claim still holds.
func (o *Outbox) held(ctx context.Context, x Executor, owner OwnerToken) ([]WorkItemID, error) {
	arg := struct {
		Owner OwnerToken `json:"owner"`
	}{owner}
	return engine.Call(ctx, o.engine, x, opHeld, arg, nil, func(rows *sql.Rows, seq *WorkItemID) error { return rows.Scan(seq) })
}
