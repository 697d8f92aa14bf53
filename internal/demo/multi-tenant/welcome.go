package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/stores"
)

// starterKit is how many orders a new tenant gets.
const starterKit = 3

// invite starts a join in the database of a tenant: a few orders, and a welcome when all have been shipped.
func (s *shop) invite(ctx context.Context, tenant string) error {
	store, err := s.router.Store(tenant)
	if err != nil {
		return err
	}
	coordinator, err := stores.Coordinator(store, join.Config{}, s.logger)
	if err != nil {
		return err
	}
	steps := make([]outbox.Message, starterKit)
	for i := range steps {
		steps[i] = outbox.Message{UUID: watermill.NewUUID(), Topic: "orders", Payload: []byte(tenant)}
	}
	err = outbox.InTx(ctx, store.DB(), func(ctx context.Context, tx *sql.Tx) error {
		id, err := coordinator.Start(ctx, tx, join.StartParams{ExpectedSteps: starterKit})
		if err != nil {
			return err
		}
		if _, err := coordinator.Enqueue(ctx, tx, id, steps...); err != nil {
			return err
		}
		_, err = coordinator.EnqueueWait(ctx, tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "welcome", Payload: []byte(tenant)}})
		return err
	})
	if err != nil {
		return fmt.Errorf("invite %s: %w", tenant, err)
	}
	for _, step := range steps {
		s.note(tenant, step.UUID)
	}
	return nil
}

// welcome is the handler of what follows when all steps have ended.
func (s *shop) welcome(msg *message.Message) error {
	store, err := storeOf(msg)
	if err != nil {
		return err
	}
	s.Say("    %s of %s steps of the join have completed; its continuation is handled in the database of %s, too",
		msg.Metadata[join.HeaderCompletedSteps], msg.Metadata[join.HeaderExpectedSteps], store.ID())
	s.welcomed <- store.ID()
	return nil
}
