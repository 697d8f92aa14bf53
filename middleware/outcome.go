// Package middleware has the router middlewares that the outbox needs and Watermill does not have.
package middleware

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Outcome carries the error or the panic of a handler to the message's row: its LastError. An error marked by
// outbox.Permanent fails the message at once, even if a handler panics with it. A Watermill router by itself only nacks.
//
// Add it first, so that it sees what the other middlewares make of the error:
//
//	router.AddMiddleware(middleware.Outcome, …)
//
// Messages that do not come from an outbox pass through.
func Outcome(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		delivery, ok := outbox.DeliveryFrom(msg.Context())
		if !ok {
			return next(msg)
		}
		defer func() {
			if reason := recover(); reason != nil {
				delivery.SetErr(panicked(reason))
				panic(reason) // the router logs the stack and nacks
			}
			switch {
			case err != nil:
				delivery.SetErr(err)
			case len(produced) > 0:
				delivery.SetErr(errNotPublished) // unless it acks
				for _, p := range produced {
					p.SetContext(seam.Delivery(delivery).In(p.Context()))
				}
			default:
				delivery.SetErr(errNacked) // the same
			}
		}()
		return next(msg)
	}
}

var (
	errNotPublished = errors.New("the handler succeeded, and the router could not publish the messages that it returned; add middleware.PublishOutcome to see why, or use middleware.Transaction")
	errNacked       = errors.New("the handler returned no error, and the message was nacked")
)

// panicked wraps the value of a panic if it is an error, because it may be marked by outbox.Permanent.
func panicked(reason any) error {
	if err, ok := reason.(error); ok {
		return fmt.Errorf("the handler panicked: %w", err)
	}
	return fmt.Errorf("the handler panicked: %v", reason)
}

// PublishOutcome carries an error of the router's publisher to the row of the message whose handler returned the messages to
// publish. It needs Outcome:
//
//	router.AddPublisherDecorators(middleware.PublishOutcome)
func PublishOutcome(publisher message.Publisher) (message.Publisher, error) {
	return publishOutcome{publisher}, nil
}

type publishOutcome struct{ message.Publisher }

func (p publishOutcome) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if err == nil || len(messages) == 0 {
		return err
	}
	if delivery, ok := outbox.DeliveryFrom(messages[0].Context()); ok {
		delivery.SetErr(fmt.Errorf("publish to %q what the handler returned: %w", topic, err))
	}
	return err
}
