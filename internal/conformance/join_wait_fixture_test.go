package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// runWaits runs the handler of join wait messages until the test ends. It is woken, and need not poll as quickly as others.
func (f *fixture) runWaits(c *join.Coordinator, options ...func(*outbox.SubscriberConfig)) {
	f.t.Helper()
	slowly := func(c *outbox.SubscriberConfig) {
		c.PollInterval, c.MaxPollInterval = 5*time.Millisecond, 100*time.Millisecond
	}
	s := f.subscriber(append([]func(*outbox.SubscriberConfig){slowly}, options...)...)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	f.NoError(err)
	c.AddWaitHandler(router, s)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.ctx())) }()
	take(f, router.Running(), "the router")
	f.t.Cleanup(func() {
		if err := errors.Join(router.Close(), <-stopped); err != nil {
			f.t.Errorf("closing the router: %v", err)
		}
	})
}

// wait enqueues a wait.
func (f *fixture) wait(c *join.Coordinator, wait join.Wait) outbox.MessageID {
	f.t.Helper()
	id, err := c.EnqueueWait(f.ctx(), nil, wait)
	f.NoError(err)
	return id
}

// waits is a wait that continues on one topic, or fails on another.
func waits(id join.ID, next, failed string) join.Wait {
	w := join.Wait{Join: id, OnComplete: join.Continuation{Topic: next, Payload: []byte("completed")}}
	if failed != "" {
		w.OnFail = &join.Continuation{Topic: failed, Payload: []byte("failed")}
	}
	return w
}

// endSteps ends all that is ready on a topic: the first ones fail, the rest are acked.
func (f *fixture) endSteps(topic string, failures int) {
	f.t.Helper()
	claimed := f.claim(topic)
	f.NotEmpty(claimed)
	f.Empty(f.settle(append(settled(outbox.Fail, claimed[:failures]...), settled(outbox.Ack, claimed[failures:]...)...)...))
}

// continues waits until a wait is done, and returns its one continuation on a topic.
func (f *fixture) continues(wait outbox.MessageID, topic string) outbox.Claimed {
	f.t.Helper()
	f.becomes(wait, outbox.Done)
	claimed := f.claim(topic)
	f.Len(claimed, 1, "one continuation a wait")
	return claimed[0]
}
