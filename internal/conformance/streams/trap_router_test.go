package streams_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// A router changes the contexts of messages as it takes them, while the Subscriber waits for their answers: the race detector sees
// it if both use the same field.
func TestTrap_StreamsThroughARouter(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		const n = 50
		handled := make(chan string, n)
		f.Route(f.Subscriber(), nil, func(msg *message.Message) error {
			handled <- msg.UUID
			return nil
		})
		for i := range n {
			f.Enqueue(outbox.Message{UUID: fmt.Sprint(i), Topic: "orders", StreamKey: "a"})
		}
		for i := range n {
			f.Equal(fmt.Sprint(i), <-handled)
		}
	})
}
