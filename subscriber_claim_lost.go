package outbox

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

const cannotGiveBackLost = "Cannot give back the messages of a claim whose answer was lost, trying again"

// lostClaims gives back what claims hold whose answers were lost: they may have been committed, and then nobody else can have their
// messages until the leases are over, which would also cost each an attempt. The database may still be at work on such a claim, so
// that one that holds nothing is looked at again, until its lease is over.
type lostClaims struct {
	outbox *Outbox
	spare  *spare
	lease  time.Duration

	mu      sync.Mutex
	over    map[OwnerToken]time.Time // when the lease of a claim is over
	arrived chan struct{}
}

func newLostClaims(o *Outbox, spare *spare, lease time.Duration) *lostClaims {
	return &lostClaims{outbox: o, spare: spare, lease: lease, over: map[OwnerToken]time.Time{}, arrived: flow.NewNote()}
}

// note notes a claim, sent at the given time, if its error leaves open whether it was committed.
func (l *lostClaims) note(owner OwnerToken, sent time.Time, err error) {
	if !errors.Is(err, ErrUnknownOutcome) {
		return
	}
	l.mu.Lock()
	l.over[owner] = sent.Add(l.lease)
	l.mu.Unlock()
	flow.Notify(l.arrived)
}

// run works until ctx ends. What is unknown then waits for its lease to be over.
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

// giveBackAll reports whether any claim must be looked at again.
func (l *lostClaims) giveBackAll(ctx context.Context) (again bool) {
	l.mu.Lock()
	owners := slices.Collect(maps.Keys(l.over))
	l.mu.Unlock()
	for _, owner := range owners {
		done, err := l.giveBack(ctx, owner)
		switch {
		case err == nil:
			l.outbox.troubles.Over(cannotGiveBackLost)
		case ctx.Err() == nil:
			l.outbox.troubles.Error(cannotGiveBackLost, err, nil)
		}
		l.mu.Lock()
		if done || time.Now().After(l.over[owner]) {
			delete(l.over, owner)
		}
		again = len(l.over) > 0
		l.mu.Unlock()
	}
	return again
}

// giveBack releases what a claim holds, and reports whether that was anything.
func (l *lostClaims) giveBack(ctx context.Context, owner OwnerToken) (done bool, err error) {
	limit := limits.Settling(l.lease)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = l.spare.run(ctx, limit/4, func(x Executor) error {
		held, err := l.outbox.held(ctx, x, owner)
		if err != nil || len(held) == 0 {
			return err
		}
		if _, err := l.outbox.settleBatch(ctx, x, settleAll(owner, held, Release, nil), settleOptions{over: []OwnerToken{owner}}); err != nil {
			return err
		}
		l.outbox.logger.Info("Gave back the messages of a claim whose answer was lost", watermill.LogFields{"count": len(held)})
		done = true
		return nil
	})
	return done, err
}

// held returns what a claim still holds.
func (o *Outbox) held(ctx context.Context, x Executor, owner OwnerToken) ([]WorkItemID, error) {
	arg := struct {
		Owner OwnerToken `json:"owner"`
	}{owner}
	return engine.Call(ctx, o.engine, x, opHeld, arg, nil, func(rows *sql.Rows, seq *WorkItemID) error { return rows.Scan(seq) })
}
