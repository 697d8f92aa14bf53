package outbox

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
)

const opStageSave operation = "outbox_stage_save"

// deliveryStages are the stages that have succeeded in one delivery.
type deliveryStages struct {
	toSettle atomic.Uint32 // saved with the settlement
	saved    atomic.Uint32 // in transactions of their own
}

// staging is a delivery as middleware.Stages sees it: see seam.Staging.
type staging struct{ delivery *Delivery }

func (s staging) Stages() base.Stages {
	d := s.delivery
	return d.claimed.Stages | base.Stages(d.stages.toSettle.Load()|d.stages.saved.Load())
}

func (s staging) Add(stages base.Stages)   { s.delivery.stages.toSettle.Or(uint32(stages)) }
func (s staging) Saved(stages base.Stages) { s.delivery.stages.saved.Or(uint32(stages)) }

func (s staging) SaveTx(ctx context.Context, tx *sql.Tx, stages base.Stages) (before bool, err error) {
	receipt := s.delivery.claimed.Receipt
	rows, err := engine.Call(ctx, s.delivery.outbox.engine, tx, opStageSave, struct {
		Seq    WorkItemID  `json:"seq"`
		Owner  OwnerToken  `json:"owner"`
		Stages base.Stages `json:"stages"`
	}{receipt.Seq, receipt.Owner, stages}, nil, func(rows *sql.Rows, before *bool) error { return rows.Scan(before) })
	switch {
	case err != nil:
		return false, err
	case len(rows) == 0:
		return false, ErrLeaseLost
	default:
		return rows[0], nil
	}
}
