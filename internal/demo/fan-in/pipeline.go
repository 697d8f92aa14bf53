package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// pipeline has two stages, a join each: what follows the first starts the second.
func (a *app) pipeline() workflow {
	return workflow{
		name:  "pipeline",
		start: a.startIngestion,
		handlers: map[string]message.NoPublishHandlerFunc{
			"ingest.source1":            a.work,
			"ingest.source2":            a.work,
			"ingest.source3":            a.work,
			"workflow.start-validation": a.startValidation,
			"validate.schema":           a.work,
			"validate.business-rules":   a.work,
			"workflow.publish":          a.publish,
		},
		want: "published what 3 sources brought, after 2 of 2 checks",
	}
}

func (a *app) startIngestion(ctx context.Context) error {
	a.Say("pipeline: sends three sources to ingest; two checks and the publication follow")
	return outbox.InTx(ctx, a.DB, func(ctx context.Context, tx *sql.Tx) error {
		if err := a.begin(ctx, tx, "pipeline"); err != nil {
			return err
		}
		return a.fanOut(ctx, tx,
			join.StartParams{GroupingKey: "workflow-789", Metadata: `{"stage": "ingestion"}`},
			join.Wait{FailIfAnyStepFailed: true, OnComplete: join.Continuation{Topic: "workflow.start-validation"}},
			"ingest.source1", "ingest.source2", "ingest.source3")
	})
}

func (a *app) work(msg *message.Message) error {
	a.Say("pipeline: %s is done", message.SubscribeTopicFromCtx(msg.Context()))
	return nil
}

// startValidation starts the second join in the transaction that acks the message which follows the first, so that a
// crash starts it neither twice nor never.
func (a *app) startValidation(msg *message.Message) error {
	a.Say("pipeline: all is ingested, it sends two checks")
	return inTxOf(msg, a.DB, func(ctx context.Context, tx *sql.Tx) error {
		sources := map[string]string{"sources": msg.Metadata[join.HeaderCompletedSteps]}
		return a.fanOut(ctx, tx,
			join.StartParams{GroupingKey: "workflow-789", Metadata: `{"stage": "validation"}`},
			join.Wait{FailIfAnyStepFailed: true, OnComplete: join.Continuation{Topic: "workflow.publish", Headers: sources}},
			"validate.schema", "validate.business-rules")
	})
}

func (a *app) publish(msg *message.Message) error {
	a.Say("pipeline: all is valid, it is published")
	return a.finish(msg, "pipeline", fmt.Sprintf("published what %s sources brought, after %s of %s checks",
		msg.Metadata["sources"], msg.Metadata[join.HeaderCompletedSteps], msg.Metadata[join.HeaderExpectedSteps]))
}
