package main

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// fanOut sends the steps of a new join, and a message that waits until all have ended. All of it is part of the caller's
// transaction. The handlers of the steps know nothing of joins: acking a message completes its step, and failing for
// good fails it.
func (a *app) fanOut(ctx context.Context, tx *sql.Tx, params join.StartParams, wait join.Wait, topics ...string) error {
	params.ExpectedSteps = len(topics)
	id, err := a.joins.Start(ctx, tx, params)
	if err != nil {
		return err
	}
	steps := make([]outbox.Message, len(topics))
	for i, topic := range topics {
		steps[i] = outbox.Message{UUID: watermill.NewUUID(), Topic: topic, Payload: []byte("{}")}
	}
	if _, err := a.joins.Enqueue(ctx, tx, id, steps...); err != nil {
		return err
	}
	wait.Join = id
	_, err = a.joins.EnqueueWait(ctx, tx, wait)
	return err
}
