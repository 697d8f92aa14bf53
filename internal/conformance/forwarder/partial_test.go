package forwarder_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
)

// enqueueStreams adds n messages with the UUIDs from, from + 1 …, in so many streams by turns.
func (f *fixture) enqueueStreams(from, n, streams int) {
	f.T.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{Topic: "orders", UUID: fmt.Sprint(from + i), StreamKey: fmt.Sprint((from + i) % streams)}
	}
	_, err := f.Outbox.Outbox.Enqueue(f.T.Context(), f.DB.DB, messages...)
	f.NoError(err)
}

// A part of the broker is away for longer than messages can be held: those go back and come again, no attempt is spent,
// the others go on, and each stream keeps its order.
func TestAPartThatIsAwayHoldsUpNoOther(t *testing.T) {
	for name, streams := range map[string]int{"few streams": 10, "a stream for almost every message": 298} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				const n = 300
				var back atomic.Bool
				f.broker.answers(func(_ string, messages []*message.Message) error {
					batch := &forwarder.BatchError{Errs: make([]error, len(messages))}
					for i, msg := range messages {
						if !back.Load() && partOf(msg) == 0 {
							batch.Errs[i] = outbox.Unavailable(errAway)
						}
					}
					return batch
				})
				f.enqueueStreams(0, n, streams)
				f.start(func(c *forwarder.Config) { c.RetryMin, c.RetryMax = 5*time.Millisecond, 200*time.Millisecond })
				there := 0
				for i := range n {
					there += i % streams % 2
				}
				f.Becomes(outbox.Done, there)
				f.triedAgain(10)
				f.enqueueStreams(n, streams, streams) // later ones of all streams
				f.Becomes(outbox.Done, there+streams/2)

				back.Store(true)
				f.Becomes(outbox.Done, n+streams)
				f.Equal(0, f.Attempts())
				f.inOrder(streams)
				f.Len(f.broker.uuids(), n+streams, "none is published twice")
			})
		})
	}
}

func partOf(msg *message.Message) int {
	key := msg.Metadata[outbox.HeaderStreamKey]
	return int(key[len(key)-1]-'0') % 2
}

// inOrder checks the order of each stream.
func (f *fixture) inOrder(streams int) {
	f.T.Helper()
	last := map[int]int{}
	for _, uuid := range f.broker.uuids() {
		var n int
		_, err := fmt.Sscan(uuid, &n)
		f.NoError(err)
		if before, known := last[n%streams]; known {
			f.Less(before, n, "stream %d", n%streams)
		}
		last[n%streams] = n
	}
}

// What went back may be cancelled, or published by another forwarder: its stream goes on.
func TestAStreamGoesOnAfterWhatWentBackHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var back atomic.Bool
		f.broker.answers(func(_ string, messages []*message.Message) error {
			batch := &forwarder.BatchError{Errs: make([]error, len(messages))}
			for i, msg := range messages {
				if !back.Load() && partOf(msg) == 0 {
					batch.Errs[i] = outbox.Unavailable(errAway)
				}
			}
			return batch
		})
		f.enqueueStreams(0, 400, 2)
		f.start(func(c *forwarder.Config) { c.RetryMin, c.RetryMax = 10*time.Millisecond, 100*time.Millisecond })
		f.Becomes(outbox.Done, 200)
		ended := 0
		for ended == 0 { // somebody takes away what has gone back
			result, err := f.DB.ExecContext(t.Context(), f.SQL("DELETE FROM {outbox_state} WHERE {status} IN (%d, 5)", outbox.Ready)) // 5: ready in its stream
			f.NoError(err)
			n, err := result.RowsAffected()
			f.NoError(err)
			ended = int(n)
		}
		back.Store(true)
		f.Becomes(outbox.Done, 400-ended)
		f.Equal(0, f.Attempts())
	})
}

// A message that cannot be published, whether the broker refuses it or the error does not say which one failed, is not overtaken within
// its stream and does not hold up other streams.
func TestWhatFailsHoldsUpItsStream(t *testing.T) {
	for name, err := range map[string]error{"refused": forwarder.Refused(errAway), "an error of its own": errAway} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				const n, streams = 60, 3 // the stream of "30" has as many before it as after it
				f.broker.answers(except(err, false, "30"))
				f.enqueueStreams(0, n, streams)
				f.start(func(c *forwarder.Config) {
					c.Subscriber.MaxAttempts = -1
					c.Subscriber.Backoff = func(int) time.Duration { return time.Millisecond }
				})
				f.Becomes(outbox.Done, n-n/streams/2)
				f.triedAgain(10)
				f.NotContains(f.broker.uuids(), "33", "it comes after it")
				f.broker.answers(takes)
				f.Becomes(outbox.Done, n)
				f.inOrder(streams)
			})
		})
	}
}
