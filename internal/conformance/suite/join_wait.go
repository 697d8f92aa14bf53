package suite

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// RunWaits runs the handler of join wait messages until the test ends. It is woken, and need not poll as quickly as others.
func (f *Fixture) RunWaits(c *join.Coordinator, options ...func(*outbox.SubscriberConfig)) {
	f.T.Helper()
	slowly := func(c *outbox.SubscriberConfig) {
		c.PollInterval, c.MaxPollInterval = 5*time.Millisecond, 100*time.Millisecond
	}
	s := f.Subscriber(append([]func(*outbox.SubscriberConfig){slowly}, options...)...)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: Patience}, nil)
	f.NoError(err)
	c.AddWaitHandler(router, s)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.Context())) }()
	Take(f.T, router.Running(), "the router")
	f.T.Cleanup(func() {
		if err := errors.Join(router.Close(), <-stopped); err != nil {
			f.T.Errorf("closing the router: %v", err)
		}
	})
}

// Wait enqueues a wait.
func (f *Fixture) Wait(c *join.Coordinator, wait join.Wait) outbox.MessageID {
	f.T.Helper()
	id, err := c.EnqueueWait(f.Context(), nil, wait)
	f.NoError(err)
	return id
}

// Waits is a wait that continues on one topic, or fails on another.
func Waits(id join.ID, next, failed string) join.Wait {
	w := join.Wait{Join: id, OnComplete: join.Continuation{Topic: next, Payload: []byte("completed")}}
	if failed != "" {
		w.OnFail = &join.Continuation{Topic: failed, Payload: []byte("failed")}
	}
	return w
}

// EndSteps ends all that is ready on a topic: the first ones fail, the rest are acked.
func (f *Fixture) EndSteps(topic string, failures int) {
	f.T.Helper()
	claimed := f.Claim(topic)
	f.NotEmpty(claimed)
	f.Empty(f.Settle(append(Settled(outbox.Fail, claimed[:failures]...), Settled(outbox.Ack, claimed[failures:]...)...)...))
}

// Continues waits until a wait is done, and returns its one continuation on a topic.
func (f *Fixture) Continues(wait outbox.MessageID, topic string) outbox.Claimed {
	f.T.Helper()
	f.Becomes(wait, outbox.Done)
	claimed := f.Claim(topic)
	f.Len(claimed, 1, "one continuation a wait")
	return claimed[0]
}
