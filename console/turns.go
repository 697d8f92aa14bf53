package console

import (
	"context"
	"time"
)

// turns are for the steps of long looks into a store. One runs at a time, and after each the store is left alone for twice as
// long as it took, so that workers on the same machine hardly notice.
type turns struct {
	taken chan struct{} // has room for one
	begun time.Time
	rest  time.Time // until then
}

// longestRest is less than a page waits for what it asks.
const longestRest = 50 * time.Millisecond

func newTurns() *turns { return &turns{taken: make(chan struct{}, 1)} }

// take waits for a turn. It is given back whatever became of ctx.
func (t *turns) take(ctx context.Context) {
	t.taken <- struct{}{}
	timer := time.NewTimer(time.Until(t.rest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	t.begun = time.Now()
}

func (t *turns) giveBack() {
	t.rest = time.Now().Add(min(2*time.Since(t.begun), longestRest))
	<-t.taken
}

type turnsKey struct{}

// nextStep lets others have a turn between two steps of the look that the context belongs to.
func nextStep(ctx context.Context) {
	t, _ := ctx.Value(turnsKey{}).(*turns) // every look has them
	t.giveBack()
	t.take(ctx)
}
