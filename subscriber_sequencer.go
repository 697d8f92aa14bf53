package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

// A sequencerWatch tells a consumer group or a projection of messages that get no position in the log: without a Sequencer it
// reads nothing, and would not know why.
type sequencerWatch struct {
	outbox       *Outbox
	lease, after time.Duration
	troubles     *quiet.Troubles
}

func newSequencerWatch(o *Outbox, logger watermill.LoggerAdapter, lease, after time.Duration) *sequencerWatch {
	return &sequencerWatch{o, lease, after, quiet.New(logger)}
}

const noSequencer = "Messages wait for a position in the log, without which no consumer group and no projection gets them; run an outbox.Sequencer, or look for its errors"

var errNoSequencer = errors.New("no sequencer is at work")

func (w *sequencerWatch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limits.Upkeep(w.lease))
	defer cancel()
	age, err := w.outbox.unloggedAge(ctx)
	switch {
	case err != nil:
		return err
	case age >= w.after:
		w.troubles.Error(noSequencer, errNoSequencer, watermill.LogFields{"age": age.String()})
	default:
		w.troubles.Over(noSequencer)
	}
	return nil
}

// unloggedAge is how long the first message without a position has been waiting for it, or 0 if none is.
func (o *Outbox) unloggedAge(ctx context.Context) (age time.Duration, err error) {
	arg := struct {
		Counted int `json:"counted"`
	}{1}
	_, err = engine.Call(ctx, o.engine, o.db, opHealth, arg, nil, func(rows *sql.Rows, _ *struct{}) error {
		var now int64
		var since sql.NullInt64
		var unused any
		err := rows.Scan(&now, &unused, &unused, &unused, &unused, &unused, &unused, &unused, &since, &unused, &unused)
		if since.Valid {
			age = time.Duration(now-since.Int64) * time.Millisecond
		}
		return err
	})
	return age, err
}
