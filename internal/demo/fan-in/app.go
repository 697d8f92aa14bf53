package main

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

//go:embed sql/*.sql
var tables embed.FS

// patience is how long the workflows may take, on a slow server under load. They take a second.
const patience = 3 * time.Minute

// A workflow is begun once; its handlers do the rest.
type workflow struct {
	name     string
	start    func(context.Context) error
	handlers map[string]message.NoPublishHandlerFunc // by topic
	want     string                                  // its outcome
}

// An app is the application.
type app struct {
	*stage.Database
	*stage.Screen
	joins  *join.Coordinator
	queue  *outbox.Outbox
	logger watermill.LoggerAdapter
	ended  chan string // names of workflows
}

func newApp(db *stage.Database, screen *stage.Screen, logger watermill.LoggerAdapter) (*app, error) {
	joins, err := join.NewCoordinator(db.DB, join.Config{Dialect: db.Dialect, Table: db.Table()}, logger)
	if err != nil {
		return nil, err
	}
	queue, err := outbox.New(db.DB, outbox.Config{Dialect: db.Dialect, Table: db.Table()}, logger)
	return &app{Database: db, Screen: screen, joins: joins, queue: queue, logger: logger, ended: make(chan string, 100)}, err
}

// run starts the router, then the workflows, and returns when all have ended.
func (a *app) run(ctx context.Context, workflows []workflow) (err error) {
	router, subscriber, err := a.router(workflows)
	if err != nil {
		return err
	}
	routing, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop()
		ran <- router.Run(routing)
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-ran, subscriber.Close()) // Close returns when the last acks are written
	}()
	select {
	case <-router.Running():
	case <-routing.Done():
		return ctx.Err()
	}
	for _, w := range workflows {
		if err := w.start(ctx); err != nil {
			return fmt.Errorf("start %s: %w", w.name, err)
		}
	}
	late := time.After(patience)
	for left := len(workflows); left > 0; left-- {
		select {
		case <-a.ended:
		case <-routing.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("%d workflows have not ended within %v", left, patience)
		}
	}
	return nil
}

// router is an ordinary Watermill router with a handler a topic, and one more that waits for joins.
func (a *app) router(workflows []workflow) (*message.Router, *outbox.Subscriber, error) {
	subscriber, err := outbox.NewSubscriber(a.DB, outbox.SubscriberConfig{
		Dialect: a.Dialect,
		Table:   a.Table(),
		Backoff: outbox.ExponentialBackoff(100*time.Millisecond, time.Second), // shorter than in earnest
	}, a.logger)
	if err != nil {
		return nil, nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, a.logger)
	if err != nil {
		return nil, nil, err
	}
	router.AddMiddleware(middleware.Outcome)
	a.joins.AddWaitHandler(router, subscriber)
	for _, w := range workflows {
		for topic, handler := range w.handlers {
			router.AddConsumerHandler(w.name+": "+topic, topic, subscriber, handler)
		}
	}
	return router, subscriber, nil
}

// begin writes down that a workflow has begun, in the transaction that sends its first messages.
func (a *app) begin(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, a.SQL(workflowBeginSQL), name)
	return err
}

// finish writes down how a workflow has ended and acks the message that ends it: both happen, or neither does.
func (a *app) finish(msg *message.Message, name, outcome string) error {
	err := inTxOf(msg, a.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, a.SQL(workflowEndSQL), outcome, name)
		return err
	})
	if err == nil {
		a.ended <- name
	}
	return err
}

// inTxOf runs f in a transaction that acks the message too. What f sends is part of it as well.
func inTxOf(msg *message.Message, db *sql.DB, f func(context.Context, *sql.Tx) error) error {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		return errors.New("the message does not come from an outbox")
	}
	return outbox.InTx(msg.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
		if err := f(ctx, tx); err != nil {
			return err
		}
		return delivery.SettleTx(ctx, tx, outbox.Ack)
	})
}

// printOutcomes reads how the workflows have ended. It is an error if one did not end as it had to.
func (a *app) printOutcomes(ctx context.Context, workflows []workflow) error {
	outcomes := map[string]string{}
	err := a.Query(ctx, func(rows *sql.Rows) error {
		var name string
		var outcome sql.NullString
		err := rows.Scan(&name, &outcome)
		outcomes[name] = outcome.String
		return err
	}, workflowListSQL)
	if err != nil {
		return err
	}
	for _, w := range workflows {
		a.Print("%-9s %s", w.name, outcomes[w.name])
		if outcomes[w.name] != w.want {
			err = errors.Join(err, fmt.Errorf("%s should have ended as %q", w.name, w.want))
		}
	}
	return err
}
