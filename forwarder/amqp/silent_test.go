package amqp_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

func take[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case got := <-from:
		return got
	case <-timer.C:
		require.FailNow(t, "waited in vain for "+what)
		panic("unreachable")
	}
}

// watching tells whenever somebody waits for the end of a context.
type watching struct {
	context.Context //nolint:containedctx // it is one
	watched         chan<- struct{}
}

func (w watching) Done() <-chan struct{} {
	select {
	case w.watched <- struct{}{}:
	default:
	}
	return w.Context.Done()
}

// A message whose context ends is not waited for while the publisher connects, nor by a call that waits for the connection
// that another is making. What still has a context goes on waiting, until Close.
func TestTrap_AContextThatEndsWhileConnecting(t *testing.T) {
	t.Parallel()
	url, accepted := testbroker.Silent(t)
	p, err := amqp.NewPublisher(amqp.Config{URL: url, ConnectTimeout: time.Hour}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	publish := func(contexts ...context.Context) <-chan error {
		var messages []*message.Message
		for _, ctx := range contexts {
			messages = append(messages, message.NewMessageWithContext(ctx, "1", nil))
		}
		published := make(chan error, 1)
		go func() { published <- p.Publish("q", messages...) }()
		return published
	}
	each := func(err error, n int) []error {
		var batch *forwarder.BatchError
		require.ErrorAs(t, err, &batch)
		require.Len(t, batch.Errs, n)
		return batch.Errs
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := publish(ctx)
	take(t, accepted, "the first connection")
	watched := make(chan struct{}, 10)
	second, both := publish(watching{ctx, watched}), publish(watching{ctx, watched}, t.Context())
	take(t, watched, "a call that waits")
	take(t, watched, "the other one")
	cancel()
	require.ErrorIs(t, each(take(t, first, "the call that connects"), 1)[0], context.Canceled)
	require.ErrorIs(t, each(take(t, second, "the call that waits"), 1)[0], context.Canceled)
	require.Empty(t, both, "one of its messages has not ended")

	require.NoError(t, p.Close())
	errs := each(take(t, both, "the call that Close ends"), 2)
	require.Error(t, errs[0], "that of its context or of Close, whichever it met first")
	require.ErrorContains(t, errs[1], "closed")
	require.Empty(t, accepted, "nobody has connected again")
}
