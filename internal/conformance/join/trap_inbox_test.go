package join_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// A wait that is put off comes again. To an inbox on the router, that must not be a duplicate.
func TestTrap_AnInboxOnTheRouterLosesNoContinuation(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.continuesInside(f.inboxMiddleware(), join.DefaultWaitTopic)
	})
}

func TestTrap_AnInboxOnTheRouterExemptsAnotherTopicOfWaits(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.continuesInside(f.inboxMiddleware("my waits"), "my waits")
	})
}

// An inbox that was not told of the topic sees that the wait was given back.
func TestTrap_AnInboxForgetsAWaitThatIsPutOff(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters) // the handler has a transaction beside that of the inbox
		f.continuesInside(f.inboxMiddleware(), "my waits")
	})
}

func (f *fixture) inboxMiddleware(exempt ...string) message.HandlerMiddleware {
	f.T.Helper()
	config := inbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema}
	f.NoError(inbox.Migrate(f.Context(), f.DB.DB, config))
	in, err := inbox.New(f.DB.DB, config, nil)
	f.NoError(err)
	once, err := middleware.Inbox(in, inbox.Identity{Source: "shop"}, exempt...)
	f.NoError(err)
	return once
}

// continuesInside asserts that a wait that was put off once still has one continuation.
func (f *fixture) continuesInside(inside message.HandlerMiddleware, topic string) {
	f.T.Helper()
	log := suite.NewLogBook()
	c := f.JoinsLogging(log, func(c *join.Config) { c.WaitTopic, c.RecheckInterval = topic, 50*time.Millisecond })
	f.serveWaits(c, f.Subscriber(), inside)
	id := f.Start(c, join.StartParams{ExpectedSteps: 1})
	wait := f.Wait(c, suite.Waits(id, "next", "failed"))
	f.Await(log, "DEBUG", "waits on")
	f.AddSteps(c, id, "steps", 1)
	f.EndSteps("steps", 0)
	f.Becomes(wait, outbox.Done)
	f.Equal(1, f.continuations("next"))
}
