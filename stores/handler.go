package stores

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// PerStore returns a handler that passes each message to the handler of its store, which build makes when the first message
// of the store comes, and which goes with the store. It is for handlers that need something of the store, such as a join
// coordinator, an inbox or a publisher.
//
// If build fails, the message is delivered again and no attempt is spent. A message that comes from elsewhere than from a
// Subscriber of this package fails for good.
func PerStore(build func(*Store) (message.HandlerFunc, error)) message.HandlerFunc {
	builder := new(int) // a key of its own
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

// record tells the delivery of an error, as middleware.Outcome would.
func record(msg *message.Message, err error) error {
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		d.SetErr(err)
	}
	return err
}
