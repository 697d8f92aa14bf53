package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/middleware"
)

// Much shorter than in earnest, for the show not to take long.
const (
	lease       = 2 * time.Second
	backoffMin  = 100 * time.Millisecond
	backoffMax  = time.Second
	maxInFlight = 8
)

// A job is what a worker process is told to do.
type job struct {
	Name        string
	DSN, Prefix string
	Topics      []string
	Flaky       string // the name of the order whose handler fails twice
	HangAfter   int    // after that many messages the worker hangs
	Verbose     bool
}

const never = -1

// A worker has the handler of the messages. What its handler sees it writes into a table and reports.
type worker struct {
	db *stage.Database
	job
	report func(news)

	turns chan int // to ship, 1 to HangAfter + 1
}

// router is an ordinary Watermill router whose messages come from the outbox. Close the subscriber after Run, for the
// router does not wait until it has written the last acks.
func (w *worker) router() (*message.Router, *outbox.Subscriber, error) {
	logger := stage.Logger(w.Verbose)
	subscriber, err := outbox.NewSubscriber(w.db.DB, outbox.SubscriberConfig{
		Dialect:       w.db.Dialect,
		Table:         w.db.Table(),
		WorkerName:    w.Name,
		MaxInFlight:   maxInFlight + len(w.Topics) - 1, // each topic without a message out keeps a place free
		LeaseDuration: lease,
		Backoff:       outbox.ExponentialBackoff(backoffMin, backoffMax),
		DrainTimeout:  time.Second,
		Hooks: outbox.Hooks{
			OnSettle: func(e outbox.SettleEvent) { w.report(news{Event: settled, Count: e.Outcomes[outbox.Ack]}) },
			OnReap:   func(e outbox.ReapEvent) { w.report(news{Event: tookOver, Count: e.Messages}) },
		},
	}, logger)
	if err != nil {
		return nil, nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, logger)
	if err != nil {
		return nil, nil, err
	}
	router.AddMiddleware(
		middleware.Outcome, // first: it carries the handler's error to the message's row
		watermillmiddleware.Recoverer,
	)
	for _, topic := range w.Topics {
		router.AddConsumerHandler("ship on "+topic, topic, subscriber, w.ship)
	}
	return router, subscriber, nil
}

// ship is the handler: nil acks the message, an error has it delivered again, outbox.Permanent fails it for good.
func (w *worker) ship(msg *message.Message) error {
	var body any
	if err := json.Unmarshal(msg.Payload, &body); err != nil {
		err = fmt.Errorf("the payload is not JSON: %w", err)
		return errors.Join(w.note(msg, refused, err), outbox.Permanent(err))
	}
	if fails, err := w.carrierFails(msg); err != nil {
		return err
	} else if fails {
		return errors.Join(w.note(msg, failed, errCarrier), errCarrier)
	}
	if w.HangAfter == never {
		return w.note(msg, delivered, nil)
	}
	return w.shipOrHang(msg)
}

// shipOrHang ships one message more than HangAfter, and hangs in all others.
func (w *worker) shipOrHang(msg *message.Message) error {
	select {
	case n := <-w.turns:
		return w.shipAs(n, msg)
	default:
	}
	w.report(news{Event: hangs, Name: msg.UUID})
	select {
	case n := <-w.turns: // whose message did not get through
		return w.shipAs(n, msg)
	case <-msg.Context().Done():
		return msg.Context().Err()
	}
}

// shipAs ships the nth message.
func (w *worker) shipAs(n int, msg *message.Message) error {
	if err := w.note(msg, delivered, nil); err != nil {
		w.turns <- n
		return err
	}
	if n <= w.HangAfter {
		return nil
	}
	w.report(news{Event: hangs, Name: msg.UUID}) // the work is done, but nobody will know: the message comes again
	<-msg.Context().Done()
	return msg.Context().Err()
}

var errCarrier = errors.New("the carrier does not answer")

// carrierFails says whether shipping this message fails: one does so twice.
func (w *worker) carrierFails(msg *message.Message) (bool, error) {
	if msg.UUID != w.Flaky {
		return false, nil
	}
	var failures int
	err := w.db.QueryRowContext(msg.Context(), w.db.SQL(handledCountSQL),
		msg.UUID, failed).Scan(&failures)
	return failures < 2, err
}

// note writes down what became of a message, with the very bytes that have arrived. Any work of a handler in the
// database would look like this; here it is all there is.
func (w *worker) note(msg *message.Message, outcome string, reason error) error {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		return errors.New("the message does not come from an outbox")
	}
	err := outbox.InTx(msg.Context(), w.db.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, w.db.SQL(handledAddSQL),
			msg.UUID, delivery.MessageID().String(), w.Name, delivery.Attempt(), outcome, []byte(msg.Payload))
		return err
	})
	if err != nil {
		return fmt.Errorf("note what became of %s: %w", msg.UUID, err)
	}
	n := news{Event: outcome, Name: msg.UUID, Attempt: delivery.Attempt(), Flaky: msg.UUID == w.Flaky}
	if reason != nil {
		n.Reason = reason.Error()
	}
	w.report(n)
	return nil
}
