package stores

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// PerStore returns a handler that passes each message to the handler of its store. build makes that handler when the store's
// first message arrives, and it is dropped with the store. Use it for handlers that need something of their store, such as a
// join coordinator, an inbox or a publisher.
//
// If build fails, the message is delivered again and no attempt is spent. A message that does not come from a Subscriber of
// this package fails for good.
func PerStore(build func(*Store) (message.HandlerFunc, error)) message.HandlerFunc {
	builder := new(int) // a unique key
	return func(msg *message.Message) ([]*message.Message, error) {
		s, ok := FromContext(msg.Context())
		if !ok {
			return nil, record(msg, outbox.Permanent(errors.New("stores: the message does not come from a subscriber of many stores")))
		}
		handler, err := partOf(s, builder, build)
		if err != nil {
			return nil, record(msg, outbox.Unavailable(fmt.Errorf("build the handler of the store %q: %w", s.ID(), err)))
		}
		return handler(msg)
	}
}

// record passes an error to the delivery, as middleware.Outcome would.
func record(msg *message.Message, err error) error {
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		d.SetErr(err)
	}
	return err
}
