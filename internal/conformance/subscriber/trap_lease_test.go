package subscriber_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// The traps of leases: statements that hang, gaps in renewing, and who has a message meanwhile.

// An operation is known by its argument, whatever the dialect makes of it.
func isOperation(s faults.Statement, has, lacks string) bool {
	return slices.ContainsFunc(s.Args, func(value any) bool {
		arg, _ := value.(string)
		return strings.Contains(arg, has) && (lacks == "" || !strings.Contains(arg, lacks))
	})
}

func isSettle(s faults.Statement) bool   { return isOperation(s, `"delete_acked":`, "") }
func isGiveBack(s faults.Statement) bool { return isOperation(s, `"give_back":`, `"give_back":0`) }

func isRenewal(s faults.Statement) bool { return isOperation(s, `"groups":`, "delete_acked") }

// A hanging statement answers nothing until its context ends. The first that matches hangs, and holds up no other.
type hanging struct {
	taken atomic.Bool
	began chan struct{}
}

func newHanging() *hanging { return &hanging{began: make(chan struct{})} }

func (h *hanging) hooks(matches func(faults.Statement) bool) faults.Hooks {
	return faults.Hooks{Before: func(ctx context.Context, s faults.Statement) error {
		if !matches(s) || !h.taken.CompareAndSwap(false, true) {
			return nil
		}
		close(h.began)
		<-ctx.Done()
		return ctx.Err()
	}}
}

// One settle that hangs ends with a part of the lease: nothing that is acked waits for it longer, as others do on SQLite, and Close
// loses nothing.
func TestTrap_HungSettle(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const topics, each, lease, drain = 10, 100, time.Minute, 10 * time.Second // the settle hangs for 15 s
		hung := newHanging()
		pool := faults.Open(t, f.DB, hung.hooks(isSettle))
		s := f.SubscriberOn(pool, nil, func(c *outbox.SubscriberConfig) {
			c.LeaseDuration, c.MaxInFlight, c.DrainTimeout = lease, topics*each, drain
		})
		var channels []<-chan *message.Message
		for i := range topics {
			f.EnqueueN(fmt.Sprintf("topic %d", i), each)
			channels = append(channels, f.Subscribe(s, fmt.Sprintf("topic %d", i)))
		}
		var received []*message.Message // all, so that none is to be claimed, which waits for a settle that it has taken along
		for _, messages := range channels {
			received = append(received, f.ReceiveN(messages, each)...)
		}
		received[0].Ack()
		suite.Take(f.T, hung.began, "the settle that hangs")
		for _, msg := range received[1:] {
			msg.Ack()
		}
		f.Eventually(func() bool { return len(f.Rows("{status} = 2")) >= topics*each-1 }, lease, 10*time.Millisecond, "the others are not settled")
		closing := time.Now()
		f.NoError(s.Close())
		f.Less(time.Since(closing), drain+suite.Patience)
		f.Len(f.Rows("{status} = 2 AND {retry_count} = 0"), topics*each, "nothing that was acked is dropped")
	})
}

// One renewal that hangs costs no lease: the next one is in time.
func TestTrap_HungRenewal(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 10
		hung := newHanging()
		hooks := hung.hooks(isRenewal)
		renewed := make(chan struct{}, 100)
		hooks.After = func(_ context.Context, s faults.Statement, err error) {
			if isRenewal(s) && err == nil {
				renewed <- struct{}{}
			}
		}
		pool := faults.Open(t, f.DB, hooks)
		f.EnqueueN("orders", n)
		messages := f.Subscribe(f.SubscriberOn(pool, nil, suite.LeaseOf(4*time.Second)), "orders")
		received := f.ReceiveN(messages, n)
		suite.Take(f.T, hung.began, "the renewal that hangs")
		select {
		case <-renewed:
		case again := <-messages:
			f.FailNow("delivered again while the first handler lives", "%v: attempt %d", again.UUID, f.Delivery(again).Attempt())
		}
		for _, msg := range received {
			if msg.Context().Err() == nil { // or else the machine was too busy to renew in time
				msg.Ack()
				f.Zero(f.Becomes(f.Delivery(msg).MessageID(), outbox.Done).Retries)
			}
		}
	})
}

// A lease is renewed when a quarter of it has run, counted from before the call that gave it.
func TestTrap_HowOftenALeaseIsRenewed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = 4 * time.Second
		sent := make(chan time.Time, 100)
		var first atomic.Pointer[string] // of a renewal's statements
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if isRenewal(s) && (first.CompareAndSwap(nil, &s.Text) || *first.Load() == s.Text) {
				sent <- time.Now()
			}
			return nil
		}})
		f.EnqueueN("orders", 1)
		msg := f.Receive(f.Subscribe(f.SubscriberOn(pool, nil, suite.LeaseOf(lease)), "orders"))
		before, _ := suite.Take(f.T, sent, "a renewal")
		var gaps []time.Duration
		for range 5 {
			now, _ := suite.Take(f.T, sent, "a renewal")
			gaps = append(gaps, now.Sub(before))
			before = now
		}
		slices.Sort(gaps)
		t.Logf("lease %v, times between renewals %v", lease, gaps)
		f.Less(gaps[0], lease*3/8) // a busy machine only makes them longer
		msg.Ack()
	})
}

// handedAgain receives a message again: not before the context of its first handler has ended.
func (f *fixture) handedAgain(messages <-chan *message.Message, first []*message.Message) *message.Message {
	f.T.Helper()
	again := f.Receive(messages)
	for _, msg := range first {
		if msg.UUID == again.UUID {
			f.Error(msg.Context().Err(), "%s is delivered again while its first handler lives", msg.UUID)
			return again
		}
	}
	f.FailNow("another message", again.UUID)
	return nil
}

// ended waits until the contexts of all have ended.
func (f *fixture) ended(received []*message.Message) {
	f.T.Helper()
	for _, msg := range received {
		suite.Take(f.T, msg.Context().Done(), "the end of the context of a message whose lease has run out")
		f.ErrorIs(context.Cause(msg.Context()), outbox.ErrLeaseLost)
	}
}

// When the database comes back a worker renews before it gives anything back: it does not take its own messages from
// its handlers, whose contexts have ended, until they return; and an outage spends no attempt.
func TestTrap_OutageLongerThanTheLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 20
		var down sync.Map
		gaveBack := make(chan struct{}, 1000)
		pool := faults.Open(t, f.DB, faults.Hooks{
			Before: func(_ context.Context, s faults.Statement) error {
				if _, yes := down.Load("down"); yes && !strings.Contains(strings.ToUpper(s.Text), "ROLLBACK") {
					return errors.New("connection refused")
				}
				return nil
			},
			After: func(_ context.Context, s faults.Statement, err error) {
				if isGiveBack(s) && err == nil {
					gaveBack <- struct{}{}
				}
			},
		})
		f.EnqueueN("orders", n)
		messages := f.Subscribe(f.SubscriberOn(pool, nil, suite.LeaseOf(2*time.Second)), "orders")
		received := f.ReceiveN(messages, n)
		down.Store("down", true)
		f.ended(received)
		f.Eventually(func() bool { return len(f.Rows("{status} = 1 AND {locked_until} < {now}")) == n }, suite.Patience, 10*time.Millisecond)
		for len(gaveBack) > 0 {
			<-gaveBack
		}
		down.Delete("down")
		for range 3 {
			suite.Take(f.T, gaveBack, "a claim that gives back expired leases")
		}
		select {
		case again := <-messages:
			f.FailNow("delivered again before its first handler has returned", "%v: attempt %d", again.UUID, f.Delivery(again).Attempt())
		default:
		}
		for i, msg := range received { // whatever they say: their contexts have ended in the middle
			if i%2 == 0 {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
		for range n {
			again := f.handedAgain(messages, received)
			f.Equal(1, f.Delivery(again).Attempt(), "the outage spent an attempt")
			again.Ack()
		}
		f.Eventually(func() bool { return len(f.Rows("{status} = 2 AND {retry_count} = 0")) == n }, suite.Patience, 5*time.Millisecond)
	})
}

// A handler that hangs loses its message in the end, and somebody is told.
func TestTrap_AHandlerThatHangs(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		told := make(chan outbox.HandledEvent, 10)
		id := f.EnqueueN("orders", 1)[0]
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxHandlerTime, c.DrainTimeout, c.MaxAttempts = 100*time.Millisecond, 50*time.Millisecond, 2
			c.Hooks.OnHandlerTimeout = func(e outbox.HandledEvent) { told <- e }
		})
		messages := f.Subscribe(s, "orders")
		deaf := f.Receive(messages)
		suite.Take(f.T, deaf.Context().Done(), "the end of the context of a handler that hangs")
		e, _ := suite.Take(f.T, told, "a word of it")
		f.Equal([]any{"orders", id, 1, outbox.Retry}, []any{e.Topic, e.MessageID, e.Attempt, e.Outcome})
		f.GreaterOrEqual(e.Took, 150*time.Millisecond)
		second := f.Receive(messages)
		f.Equal(2, f.Delivery(second).Attempt())
		deaf.Ack() // too late
		e, _ = suite.Take(f.T, told, "a word of the last attempt")
		f.Equal(outbox.Fail, e.Outcome)
		r := f.Becomes(id, outbox.Failed)
		f.Contains(r.LastError, "MaxHandlerTime")
	})
}

// After Close there is no next settle that would end the leases of what the last ones settled.
func TestTrap_CloseLeavesNoLease(t *testing.T) {
	for name, keyed := range map[string]string{"queue": "", "streams": "a"} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				s := f.Subscriber()
				messages := f.Subscribe(s, "orders")
				ids := f.Enqueue(outbox.Message{Topic: "orders", StreamKey: keyed}, outbox.Message{Topic: "orders", StreamKey: keyed},
					outbox.Message{Topic: "orders", StreamKey: keyed})
				f.Receive(messages).Ack()
				f.Becomes(ids[0], outbox.Done)
				last := f.Receive(messages)
				closed := make(chan error, 1)
				go func() { closed <- s.Close() }()
				for msg := range messages { // until nothing more is handed out
					msg.Ack()
				}
				last.Ack()
				f.NoError(<-closed)
				f.Zero(f.Number("SELECT COUNT(*) FROM {outbox_lease}"))
			})
		})
	}
}
