package middleware

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// A StageSet is what has happened to a message, as bits: the type of Record.Stages, Claimed.Stages and Settlement.Stages.
// Its String, and the column "stages" of the view, have names: "Stored, ReceptorProcessed, own 0".
type StageSet = base.Stages

// The stages of the specification.
const (
	Stored               = base.StageStored               // it is in the table: every message has it
	EventStored          = base.StageEventStored          // it is in the event store: PublisherConfig.EventStream sets it
	Published            = base.StagePublished            // it was sent on
	ReceptorProcessed    = base.StageReceptorProcessed    // its handler has run
	PerspectiveProcessed = base.StagePerspectiveProcessed // the views of its data are up to date
)

// OwnStage is the first of 16 stages of your own. Declare them together, once:
//
//	const (
//		charged = middleware.OwnStage << iota
//		mailed
//		indexed // new: at the end, wherever it runs
//	)
//
// The bits are stored. Where a stage stands in the call of Stages does not matter to them, so stages may be added, moved and
// left out at any time. Never give the bit of one to another while messages are in the table.
const OwnStage = base.StageOwn

// A Stage is a part of a handler that is not repeated once it has succeeded.
type Stage struct {
	// Bit is where its success is saved: one of the constants except Stored, or one of your own. Required, and different for
	// each stage of a handler.
	Bit StageSet

	// Name is what errors call it. Defaults to that of the bit: "ReceptorProcessed", "own 0".
	Name string

	// Run does the work. Required.
	Run message.NoPublishHandlerFunc

	// DB runs the stage in a transaction of its own on the database of the Subscriber: what it writes and the bit are
	// committed together, or neither is. Run finds the transaction with outbox.TxFrom, and an outbox Publisher uses it without
	// being told. Defaults to none: the bit is saved when the attempt ends.
	DB *sql.DB
}

// Stages returns a handler that runs stages in order. It stops at the first error, and the next attempt begins with the stage
// that has failed: those that have succeeded are saved with the message, and skipped.
//
//	handler, err := middleware.Stages(
//		middleware.Stage{Bit: charged, Name: "charge", Run: charge, DB: db},
//		middleware.Stage{Bit: mailed, Name: "mail", Run: mail},
//	)
//	router.AddConsumerHandler("order", "orders", subscriber, handler)
//
// A stage with a DB has its effect in that database once, whatever happens. The message's row is locked at the end of its
// transaction; if another worker may have the message by then, the stage is rolled back. It must not call Delivery.SettleTx.
//
// A stage without a DB is saved together with the ack or nack of the attempt. If the process dies, or loses the lease,
// between the effect and that, the stage runs again: make it idempotent by Delivery.MessageID.
//
// What is saved survives retries, releases, expired leases and Requeue, unless RequeueParams.StartOver is set. A message that
// is acked or has failed keeps its stages, for people to see.
//
// Handlers like this one cannot be inside Transaction or Inbox, whose rollback would undo what is saved as done: list their
// topics in TransactionConfig.Exempt, and among those that Inbox exempts. Nor can they handle messages of a consumer group or of
// other subscribers, which have no row to save anything in. Both fail the message.
//
// Stages returns an *outbox.FieldError that names a bad field.
func Stages(stages ...Stage) (message.NoPublishHandlerFunc, error) {
	if len(stages) == 0 {
		return nil, field.Bad("stages", "is empty")
	}
	list := make([]Stage, len(stages))
	var seen StageSet
	for i, s := range stages {
		if err := s.validate(seen); err != nil {
			return nil, err
		}
		seen |= s.Bit
		field.Default(&s.Name, s.Bit.String())
		list[i] = s
	}
	return func(msg *message.Message) error { return runStages(list, msg) }, nil
}

func (s Stage) validate(seen StageSet) error {
	switch {
	case bits.OnesCount32(uint32(s.Bit)) != 1 || !s.Bit.Valid() || s.Bit == Stored:
		return field.Bad("Stage.Bit", "%#x is not the bit of a stage; use a constant of this package, or OwnStage << 0 to OwnStage << 15", uint32(s.Bit))
	case seen.Has(s.Bit):
		return field.Bad("Stage.Bit", "two stages have %v", s.Bit)
	case s.Run == nil:
		return field.Bad("Stage.Run", "is nil")
	}
	return nil
}

var (
	errNoRow      = outbox.Permanent(errors.New("middleware: Stages needs a message of the queue: others have no row to save stages in"))
	errStagesInTx = outbox.Permanent(errors.New("middleware: Stages cannot run inside a transaction, whose rollback would undo stages that are saved; " +
		"add the topic to TransactionConfig.Exempt, and to the topics that middleware.Inbox exempts"))
	errStageBefore = errors.New("the stage had succeeded before")
)

func runStages(stages []Stage, msg *message.Message) error {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok || delivery.Group() != "" {
		return errNoRow
	}
	if _, inTx := outbox.TxFrom(msg.Context()); inTx {
		return errStagesInTx
	}
	saving := seam.Stages(delivery)
	for _, s := range stages {
		if saving.Stages().Has(s.Bit) {
			continue
		}
		if err := context.Cause(msg.Context()); err != nil {
			return fmt.Errorf("before stage %q: %w", s.Name, err)
		}
		if err := s.run(msg, saving); err != nil {
			return fmt.Errorf("stage %q: %w", s.Name, err)
		}
	}
	return nil
}

func (s Stage) run(msg *message.Message, saving seam.Staging) error {
	if s.DB == nil {
		err := s.Run(msg)
		if err == nil {
			saving.Add(s.Bit)
		}
		return err
	}
	received := msg.Context()
	defer msg.SetContext(received)
	err := outbox.InTx(received, s.DB, func(ctx context.Context, tx *sql.Tx) error {
		msg.SetContext(ctx)
		if err := s.Run(msg); err != nil {
			return err
		}
		before, err := saving.SaveTx(ctx, tx, s.Bit) // last: a locked row cannot be renewed
		if err == nil && before {
			err = errStageBefore
		}
		return err
	})
	if errors.Is(err, errStageBefore) {
		err = nil
	}
	if err == nil {
		saving.Saved(s.Bit)
	}
	return err
}
