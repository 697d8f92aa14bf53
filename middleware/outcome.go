// Package middleware has the router middlewares that the outbox needs and Watermill lacks.
package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// Outcome carries the error or the panic of a handler to the message's row: its LastError (OBX-035, OBX-037, OBX-050).
// An error marked by outbox.Permanent fails the message at once. A Watermill router itself only nacks.
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
				delivery.SetErr(fmt.Errorf("the handler panicked: %v", reason))
				panic(reason) // the router logs the stack and nacks
			}
			if err != nil {
				delivery.SetErr(err)
			}
		}()
		return next(msg)
	}
}
