package outbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// The contents of acknowledged messages are deleted this long after their states, or sooner once a batch is full. While they
// cannot be deleted, at most removeMost are remembered, and the janitor finds the others. Close waits for the last of them no
// longer than removeLast.
const (
	removeAfter = 200 * time.Millisecond
	removeLast  = closeGrace / 3
	removeMost  = 100 * maxBatch
)

const cannotRemove = "Cannot delete the contents of acknowledged messages, trying again"

// A remover deletes the contents of messages whose states were deleted when they were acknowledged. It runs in the
// background, so that it never holds up settling.
type remover struct {
	outbox *Outbox
	lease  time.Duration

	mu      sync.Mutex
	seqs    []WorkItemID
	arrived chan struct{}
}

func newRemover(o *Outbox, lease time.Duration) *remover {
	return &remover{outbox: o, lease: lease, arrived: flow.NewNote()}
}

// add queues messages whose states are certainly deleted.
func (r *remover) add(seqs []WorkItemID) {
	if len(seqs) == 0 {
		return
	}
	r.mu.Lock()
	first := len(r.seqs) == 0
	r.seqs = append(r.seqs, seqs[:min(len(seqs), max(0, removeMost-len(r.seqs)))]...)
	full := len(r.seqs) >= maxBatch
	r.mu.Unlock()
	if first || full {
		flow.Notify(r.arrived)
	}
}

// run works until ctx ends.
func (r *remover) run(ctx context.Context) {
	for {
		select {
		case <-r.arrived:
		case <-ctx.Done():
			return
		}
		if !r.full() {
			_ = flow.Pause(ctx, removeAfter)
		}
		for outage := flow.Outage(); ; {
			err := r.removeAll(ctx)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				r.outbox.troubles.Over(cannotRemove)
				break
			}
			r.outbox.troubles.Error(cannotRemove, err, nil)
			_ = flow.Pause(ctx, outage.Next())
		}
	}
}

// last deletes what run has left, if the database answers soon; otherwise the janitor finds it.
func (r *remover) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeLast)
	defer cancel()
	_ = r.removeAll(ctx)
}

func (r *remover) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seqs) >= maxBatch
}

func (r *remover) removeAll(ctx context.Context) error {
	r.mu.Lock()
	seqs := r.seqs
	r.seqs = nil
	r.mu.Unlock()
	for batch := range slices.Chunk(seqs, maxBatch) {
		arg := purgeArg{Seqs: batch, Limit: maxBatch}
		if _, _, err := r.outbox.purgeBatch(ctx, opPurge, &arg, limits.Upkeep(r.lease)); err != nil {
			r.add(seqs)
			return err
		}
		seqs = seqs[len(batch):]
	}
	return nil
}
