package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// etl extracts three things, and transforms them when it has all three. If one cannot be had, it says so instead.
func (a *app) etl() workflow {
	return workflow{
		name:  "etl",
		start: a.startETL,
		handlers: map[string]message.NoPublishHandlerFunc{
			"extract.customers":  a.extract,
			"extract.orders":     a.extract,
			"extract.products":   a.extract,
			"etl.transform":      a.transform,
			"etl.extract.failed": a.extractFailed,
		},
		want: "transformed what 3 of 3 extractions brought",
	}
}

func (a *app) startETL(ctx context.Context) error {
	a.Say("etl: sends three extractions and what follows them, in one transaction")
	return outbox.InTx(ctx, a.DB, func(ctx context.Context, tx *sql.Tx) error {
		if err := a.begin(ctx, tx, "etl"); err != nil {
			return err
		}
		return a.fanOut(ctx, tx,
			join.StartParams{GroupingKey: "CUST-123", Metadata: `{"type": "etl", "phase": "extract"}`},
			join.Wait{
				FailIfAnyStepFailed: true,
				OnComplete:          join.Continuation{Topic: "etl.transform", Payload: []byte(`{"customer": "CUST-123"}`)},
				OnFail:              &join.Continuation{Topic: "etl.extract.failed", Payload: []byte(`{"customer": "CUST-123"}`)},
			},
			"extract.customers", "extract.orders", "extract.products")
	})
}

var errSource = errors.New("the source does not answer")

// extract fails once for one source. That only takes longer: the step ends when its message does.
func (a *app) extract(msg *message.Message) error {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		return errors.New("the message does not come from an outbox")
	}
	if delivery.Topic() == "extract.orders" && delivery.Attempt() == 1 {
		a.Say("etl: %s fails: %v; it comes again", delivery.Topic(), errSource)
		return errSource
	}
	a.Say("etl: %s, attempt %d, is done", delivery.Topic(), delivery.Attempt())
	return nil
}

func (a *app) transform(msg *message.Message) error {
	a.Say("etl: the join has %s, the transformation runs", msg.Metadata[join.HeaderStatus])
	return a.finish(msg, "etl", fmt.Sprintf("transformed what %s of %s extractions brought",
		msg.Metadata[join.HeaderCompletedSteps], msg.Metadata[join.HeaderExpectedSteps]))
}

func (a *app) extractFailed(msg *message.Message) error {
	return a.finish(msg, "etl", msg.Metadata[join.HeaderFailedSteps]+" extractions failed")
}
