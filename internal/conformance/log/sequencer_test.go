package log_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// A consumer group says why it gets nothing, and that this is over when a Sequencer has come.
func TestGroup_WithoutASequencer(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueLogged(f.LogOutbox(), "orders", "1")
		book := suite.NewLogBook()
		sub := f.GroupSubscriber(f.DB.DB, "billing", book, func(c *outbox.SubscriberConfig) { c.UnhandledAfter = 20 * time.Millisecond })
		messages := f.Subscribe(sub, "orders")
		line := f.Await(book, "ERROR", "run an outbox.Sequencer")
		f.NotEmpty(line.Fields["age"])
		f.Sequencer()
		msg := f.Receive(messages)
		f.Equal("1", msg.UUID)
		msg.Ack()
		f.Await(book, "INFO", "run an outbox.Sequencer")
		f.NoError(sub.Close())
	})
}
