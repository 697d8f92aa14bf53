package seam

import (
	"context"
	"database/sql"

	"github.com/incursa/watermill-outbox/internal/base"
)

// Stages leads from a *outbox.Delivery to the stages of its message.
var Stages func(ADelivery) Staging

// Staging is what middleware.Stages does with a delivery of the queue. A consumer group has no row to save stages in.
type Staging interface {
	// Stages returns those of earlier attempts and of this one.
	Stages() base.Stages

	// Add has stages saved with the settlement of this attempt, whatever its outcome.
	Add(stages base.Stages)

	// SaveTx saves stages in the handler's own transaction, which from then on locks the message's row. It reports whether
	// they had been saved before, by a transaction whose commit was not known to have succeeded: then roll this one back. It
	// returns outbox.ErrLeaseLost if another worker may have the message.
	SaveTx(ctx context.Context, tx *sql.Tx, stages base.Stages) (before bool, err error)

	// Saved says that the transaction of SaveTx was committed, or that the stages had been saved before it.
	Saved(stages base.Stages)
}
