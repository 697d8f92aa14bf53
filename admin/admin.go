package admin

import (
	"context"
	"database/sql"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Limits of one call to the database. Larger work is done in several calls.
const (
	maxBatch = 1000
	countCap = 10_000
	errorCut = 1000 // of an error, in characters
	eventCap = 1000 // of one kind in a story
)

// An Admin looks after one outbox. It is safe for concurrent use; it holds no connection and need not be closed. Any call may
// return outbox.ErrSchema.
type Admin struct {
	outbox *outbox.Outbox
	run    seam.Operations
}

// New returns the Admin of an outbox. It does not touch the database. It returns an error if o is nil.
func New(o *outbox.Outbox) (*Admin, error) {
	if o == nil {
		return nil, base.ErrNilDB
	}
	return &Admin{outbox: o, run: seam.Outbox(o)}, nil
}

// call runs an operation and reads each of its rows.
func (a *Admin) call(ctx context.Context, op string, arg any, scan func(*sql.Rows) error) error {
	return a.run.Run(ctx, a.outbox.DB(), op, arg, scan)
}
