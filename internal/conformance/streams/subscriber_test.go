package streams_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// A streamWatch is what handlers of streams have in common: it sees whether each stream is in order, and with one handler at a
// time. A message that was acknowledged may come again, where its worker has stopped before that was in the table.
type streamWatch struct {
	f     *fixture
	mu    sync.Mutex
	in    map[string]int // handlers
	next  map[string]int // the message that comes first now
	tries map[string]int
	again int // messages that came again after their ack
	left  int
	done  chan struct{} // closed when all were acknowledged
}

func (f *fixture) watch(messages int) *streamWatch {
	return &streamWatch{f: f, in: map[string]int{}, next: map[string]int{}, tries: map[string]int{}, left: messages, done: make(chan struct{})}
}

// enter is called by a handler that begins.
func (w *streamWatch) enter(msg *message.Message) (key string, n int) {
	key = suite.DeliveryOf(msg).StreamKey()
	n, err := strconv.Atoi(msg.UUID)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in[key]++
	w.tries[key]++
	if err != nil || w.in[key] != 1 || n > w.next[key] {
		w.f.T.Errorf("%s: message %s comes where %d was expected, to %d handlers at a time, %v", key, msg.UUID, w.next[key], w.in[key], err)
	}
	if n < w.next[key] {
		w.again++
	}
	return key, n
}

// leave is called by one that ends, before it answers.
func (w *streamWatch) leave(key string, n int, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in[key]--
	if !over || n < w.next[key] {
		return
	}
	w.next[key] = n + 1
	if w.left--; w.left == 0 {
		close(w.done)
	}
}

// handle handles messages until there are no more; fails says which attempts do not succeed.
func (w *streamWatch) handle(messages <-chan *message.Message, fails func(key string, try int) bool) {
	for msg := range messages {
		go func() {
			key, n := w.enter(msg)
			w.mu.Lock()
			failed := fails(key, w.tries[key])
			w.mu.Unlock()
			w.leave(key, n, !failed)
			if failed {
				msg.Nack()
			} else {
				msg.Ack()
			}
		}()
	}
}

// Several Subscribers and handlers that fail now and then: each stream in order, one at a time.
func TestStream_SubscribersKeepTheOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const streams, each = 20, 50
		f.Ordered("orders", streams, each)
		w := f.watch(streams * each)
		for range 3 {
			s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxAttempts = -1 })
			go w.handle(f.Subscribe(s, "orders"), func(_ string, try int) bool { return try%7 == 0 })
		}
		suite.Take(f.T, w.done, "the last message")
		f.Zero(w.again, "nothing comes again that was acknowledged")
	})
}

// Subscribers are replaced one after the other while messages are published: Close gives back what was not handed out, and the
// next goes on there.
func TestTrap_StreamsInARollingRestart(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const streams, each, restarts = 10, 60, 6
		w := f.watch(streams * each)
		never := func(string, int) bool { return false }
		running := []*outbox.Subscriber{f.Subscriber(), f.Subscriber()}
		for _, s := range running {
			go w.handle(f.Subscribe(s, "orders"), never)
		}
		for i := range restarts {
			f.Enqueue(suite.OrderedMessages("orders", streams, i*each/restarts, (i+1)*each/restarts)...)
			f.NoError(running[0].Close())
			next := f.Subscriber()
			go w.handle(f.Subscribe(next, "orders"), never)
			running = append(running[1:], next)
		}
		suite.Take(f.T, w.done, "the last message")
		f.Zero(w.again)
	})
}

// A handler that waits has one message of its stream, and holds up no other stream.
func TestStream_OneMessageAtATime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Ordered("orders", 3, 2)
		messages := f.Subscribe(f.Subscriber(), "orders")
		first := f.ReceiveN(messages, 3)
		keys := map[string]bool{}
		for _, msg := range first {
			f.Equal("0", msg.UUID)
			keys[f.Delivery(msg).StreamKey()] = true
		}
		f.Len(keys, 3)
		for _, msg := range first {
			msg.Ack()
			next := f.Receive(messages)
			f.Equal("1", next.UUID)
			f.Equal(f.Delivery(msg).StreamKey(), f.Delivery(next).StreamKey())
			next.Ack()
		}
	})
}

// With PipelineStreams, all claimed messages of a stream are handed out at once. Nobody else can claim the stream until every one of
// them has been answered. Delivery then resumes at the first that was not acked.
func TestStream_PipelineStreams(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Ordered("orders", 1, 5)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.PipelineStreams = true })
		messages := f.Subscribe(s, "orders")
		run := f.ReceiveN(messages, 5)
		for i, msg := range run {
			f.Equal(fmt.Sprint(i), msg.UUID)
		}
		run[0].Ack()
		run[1].Ack()
		f.Delivery(run[2]).SetErr(errors.New("not this time"))
		run[2].Nack()
		seam.Delivery(f.Delivery(run[3])).Postpone(0)
		run[3].Nack()
		f.Becomes(f.Delivery(run[3]).MessageID(), outbox.Ready)
		f.Empty(f.ClaimUpTo(10, "orders"), "the last is out")
		seam.Delivery(f.Delivery(run[4])).Postpone(0)
		run[4].Nack()
		for i, attempt := range []int{2, 1, 1} {
			msg := f.Receive(messages)
			f.Equal(fmt.Sprint(2+i), msg.UUID)
			f.Equal(attempt, f.Delivery(msg).Attempt())
			msg.Ack()
		}
		f.Becomes(f.Delivery(run[4]).MessageID(), outbox.Done)
	})
}

// Neither a message without attempts left nor anything behind it is handed out.
func TestStream_PipelineStreamsBehindABlockedHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Ordered("orders", 1, 3)
		f.Settle(suite.Retried(f.ClaimUpTo(1, "orders")[0]))
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.PipelineStreams, c.MaxAttempts = true, 1 })
		f.Subscribe(s, "orders")
		f.Becomes(ids[0], outbox.Failed)
		for _, id := range ids[1:] {
			f.Becomes(id, outbox.Ready) // while it is offered to a handler it is in progress
		}
	})
}

// After its last attempt a message blocks its stream, or is skipped, as the config says: also where it failed in the handler's
// own transaction.
func TestStream_OnStreamFailure(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, inTx := range map[string]bool{"nack": false, "SettleTx": true} {
			for _, policy := range []outbox.FailurePolicy{outbox.Block, outbox.DeadLetter} {
				topic := fmt.Sprint(name, policy)
				ids := f.Ordered(topic, 1, 2)
				s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.OnStreamFailure, c.MaxAttempts = policy, 2 })
				messages := f.Subscribe(s, topic)
				f.Receive(messages).Nack()
				last := f.Receive(messages)
				f.Equal(2, f.Delivery(last).Attempt())
				if f.Delivery(last).SetErr(errors.New("for good")); inTx {
					tx, err := f.DB.BeginTx(f.Context(), nil)
					f.NoError(err)
					f.NoError(f.Delivery(last).SettleTx(f.Context(), tx, outbox.Fail))
					f.NoError(tx.Commit())
					last.Ack()
				} else {
					last.Nack()
				}
				f.Becomes(ids[0], outbox.Failed)
				if policy == outbox.Block {
					f.Eventually(func() bool {
						blocked, err := f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{Topic: topic})
						return err == nil && len(blocked) == 1
					}, suite.Patience, suite.Tick)
					f.NoError(f.Outbox.SkipHead(f.Context(), topic, suite.StreamKey(0)))
				}
				next := f.Receive(messages)
				f.Equal("1", next.UUID)
				next.Ack()
				f.Becomes(ids[1], outbox.Done)
				f.NoError(s.Close())
			}
		}
	})
}

// A handler's own transaction ends its message, and the next of the stream comes.
func TestStream_SettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, deletes := range []bool{false, true} {
			f.Ordered("orders", 1, 40)
			s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.DeleteOnAck = deletes })
			messages := f.Subscribe(s, "orders")
			for i := range 40 {
				msg := f.Receive(messages)
				f.Equal(fmt.Sprint(i), msg.UUID)
				tx, err := f.DB.BeginTx(f.Context(), nil)
				f.NoError(err)
				f.NoError(f.Delivery(msg).SettleTx(f.Context(), tx, outbox.Ack))
				f.NoError(tx.Commit())
				msg.Ack()
			}
			f.Eventually(func() bool { return f.Number("SELECT COUNT(*) FROM {outbox_stream}") == 0 }, suite.Patience, suite.Tick, "streams without messages leave no rows")
			f.NoError(s.Close())
		}
	})
}

// Workers come and go and handlers fail: no inversion, nothing lost, no two handlers in a stream.
func TestLong_StreamSoak(t *testing.T) {
	seed := testprocess.Seed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEach(t, func(t *testing.T, f *fixture) {
		const streams, each, rounds = 30, 20, 5
		random := rand.New(rand.NewPCG(seed, 0))
		w := f.watch(streams * each * rounds)
		fails := func(string, int) bool { return random.IntN(10) == 0 } // under the lock of the watch
		start := func() *outbox.Subscriber {
			s := f.Subscriber(func(c *outbox.SubscriberConfig) {
				c.MaxAttempts, c.MaxStreamRun, c.MaxInFlight = -1, 5, 40
			})
			go w.handle(f.Subscribe(s, "orders"), fails)
			return s
		}
		running := []*outbox.Subscriber{start(), start(), start()}
		for i := range rounds {
			f.Enqueue(suite.OrderedMessages("orders", streams, i*each, (i+1)*each)...)
			f.NoError(running[0].Close())
			running = append(running[1:], start())
		}
		suite.Take(f.T, w.done, "the last message")
		t.Logf("%d messages came again", w.again)
	})
}
