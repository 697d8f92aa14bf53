package outbox

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// streamPartitions is into how many virtual partitions the streams fall, by the hash of topic and key that is their id.
const streamPartitions = 10_000

// A streamShare is the share of the streams that a worker prefers, in virtual partitions.
type streamShare struct {
	Low        int   `json:"low"`
	High       int   `json:"high"` // included
	Workers    int   `json:"workers"`
	PatienceMS int64 `json:"patience_ms"`
}

// A presence writes a worker's heartbeats and keeps the share of the streams that follows from the answer. The share only
// says which streams to prefer, so a late heartbeat or a wrong worker count is harmless.
type presence struct {
	outbox   *Outbox
	holdings *flow.Leases[*Delivery]
	spare    *spare
	lease    time.Duration
	affinity time.Duration

	started bool // the first heartbeat has arrived
	share   atomic.Pointer[streamShare]
}

type heartbeat struct {
	Worker string `json:"worker"`
	LiveMS int64  `json:"live_ms"`
	Start  bool   `json:"start,omitempty"`
	Stop   bool   `json:"stop,omitempty"`
}

// living counts the live workers, and how many of them come before this one.
type living struct{ workers, lower int }

// beat writes a heartbeat. Two may fail before the worker counts as dead.
func (p *presence) beat(ctx context.Context) error {
	others, err := p.tell(ctx, heartbeat{Start: !p.started}, limits.Renewing(p.lease))
	if err != nil {
		return err
	}
	p.started = true
	p.share.Store(others.share(p.affinity))
	return nil
}

// leave says that the worker has ended, if the database answers soon.
func (p *presence) leave(ctx context.Context) {
	if p.started {
		_, _ = p.tell(ctx, heartbeat{Stop: true}, time.Second) // otherwise it counts as dead a little later
	}
}

func (p *presence) tell(ctx context.Context, beat heartbeat, limit time.Duration) (l living, err error) {
	beat.Worker, beat.LiveMS = p.outbox.config.WorkerName, 3*limits.Heartbeat(p.lease).Milliseconds()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	call := func(x Executor) error {
		rows, err := engine.Call(ctx, p.outbox.engine, x, opWorkerBeat, beat, nil, func(rows *sql.Rows, l *living) error {
			return rows.Scan(&l.workers, &l.lower)
		})
		if err == nil && len(rows) > 0 {
			l = rows[0]
		}
		return err
	}
	if p.holdings.None() {
		err = call(p.outbox.db)
	} else {
		err = p.spare.run(ctx, limit/4, call)
	}
	return l, err
}

// share is nil for a worker that is alone.
func (l living) share(patience time.Duration) *streamShare {
	if patience < 0 || l.workers < 2 || l.lower >= l.workers {
		return nil
	}
	return &streamShare{
		Low:        l.lower * streamPartitions / l.workers,
		High:       (l.lower+1)*streamPartitions/l.workers - 1,
		Workers:    l.workers,
		PatienceMS: patience.Milliseconds(),
	}
}
