package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/middleware"
)

func TestOBX047_ExpiredLeasesAreReapedWithoutAnybodyAsking(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.claimOne("orders")
		unread := f.claimOne("a topic that nobody reads")
		f.expireLeases() // their workers have died
		reaped := make(chan int, 100)
		s := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.LeaseDuration = time.Second
			c.Hooks.OnReap = func(e outbox.ReapEvent) { reaped <- e.Messages }
		})
		msg := f.receive(f.subscribe(s, "orders"))
		f.Equal(2, f.delivery(msg).Attempt(), "a reap counts an attempt")
		msg.Ack()
		f.becomes(unread.ID, outbox.Ready)
		n, _ := take(f, reaped, "the hook")
		f.Positive(n)
	})
}

func TestOBX048_AMessageGoesToItsTopic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.subscriber()
		a, b, c := f.subscribe(s, "a"), f.subscribe(s, "b"), f.subscribe(s, "c")
		want := map[string]<-chan *message.Message{"a": a, "b": b}
		for topic := range want {
			f.enqueueN(topic, 20)
		}
		for topic, messages := range want {
			for _, msg := range f.receiveN(messages, 20) {
				f.Equal(topic, f.delivery(msg).Topic())
				msg.Ack()
			}
		}
		f.Empty(c)
		f.NoError(s.Close())
		f.Len(f.rows("{status} = 2"), 40)
	})
}

func TestOBX049_ATopicWithoutAHandlerIsNamedAndItsMessagesStay(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		backlog := make(chan []outbox.TopicBacklog, 1000)
		id := f.enqueueN("unhandled", 1)[0]
		s := f.subscriberOn(f.db.DB, book, func(c *outbox.SubscriberConfig) {
			c.UnhandledAfter = 5 * time.Millisecond
			c.Hooks.OnBacklog = func(topics []outbox.TopicBacklog) { backlog <- topics }
		})
		f.subscribe(s, "handled")
		line := f.await(book, "ERROR", "without a handler")
		f.Equal("unhandled", line.fields["names"])
		topics, _ := take(f, backlog, "the gauge")
		f.Len(topics, 2, "with the one that is handled and empty")
		f.Equal("unhandled", topics[0].Topic)
		f.Equal(1, topics[0].Waiting)
		f.False(topics[0].Handled)
		f.NoError(s.Close())
		r := f.row(id)
		f.Equal(int(outbox.Ready), r.status)
		f.Zero(r.retries)
	})
}

func TestOBX050_AHandlersFailureDecidesByPolicy(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.subscriber(func(c *outbox.SubscriberConfig) { c.Backoff = func(int) time.Duration { return time.Hour } })
		ids := map[string]outbox.MessageID{}
		f.route(s, nil, func(msg *message.Message) error {
			switch msg.UUID {
			case "error":
				return errBoom
			case "permanent":
				return fmt.Errorf("wrapped: %w", outbox.Permanent(errBoom))
			case "panic":
				panic("the handler has a bug")
			}
			return nil
		})
		for _, name := range []string{"error", "permanent", "panic", "fine"} {
			ids[name] = f.enqueue(outbox.Message{Topic: "orders", UUID: name})[0]
		}
		f.becomes(ids["fine"], outbox.Done)
		r := f.becomes(ids["permanent"], outbox.Failed)
		f.Equal("wrapped: "+errBoom.Error(), r.lastError)
		for name, text := range map[string]string{"error": errBoom.Error(), "panic": "the handler has a bug"} {
			f.Eventually(func() bool { return f.row(ids[name]).retries == 1 }, patience, 2*time.Millisecond)
			r = f.row(ids[name])
			f.Equal(int(outbox.Ready), r.status, name)
			f.Contains(r.lastError, text)
			f.False(r.isDue, "%s waits for its backoff", name)
		}
	})
}

// route runs a Watermill router with Outcome first until the test ends.
func (f *fixture) route(s message.Subscriber, logger watermill.LoggerAdapter, handle message.NoPublishHandlerFunc) {
	f.t.Helper()
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, logger)
	f.NoError(err)
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("orders", "orders", s, handle)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.ctx())) }()
	take(f, router.Running(), "the router")
	f.t.Cleanup(func() {
		if err := errors.Join(router.Close(), <-stopped); err != nil {
			f.t.Errorf("closing the router: %v", err)
		}
	})
}

func TestOBX051_AHandlerGetsTheWholeMessageAndWhatCancelsIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		type key struct{}
		s := f.subscriber()
		ctx := context.WithValue(context.WithoutCancel(f.ctx()), key{}, "a value of the subscription")
		messages, err := s.Subscribe(ctx, "orders")
		f.NoError(err)
		due := f.now().Add(-time.Minute)
		id := f.enqueue(outbox.Message{
			UUID: "uuid", Topic: "orders", Payload: []byte("\x00payload"), Headers: map[string]string{"k": "v"}, CorrelationID: "cause", DueAt: due})[0]
		msg := f.receive(messages)
		f.Equal("uuid", msg.UUID)
		f.Equal("\x00payload", string(msg.Payload))
		f.Equal("v", msg.Metadata.Get("k"))
		f.Equal("cause", msg.Metadata.Get("correlation_id"))
		f.Equal("a value of the subscription", msg.Context().Value(key{}))
		d := f.delivery(msg)
		f.Equal(id, d.MessageID())
		seq, owner := seam.Delivery(d).Claim()
		f.Equal(f.row(id).seq, seq)
		f.Equal(f.row(id).owner, owner)
		f.Equal("orders", d.Topic())
		f.Equal(1, d.Attempt())
		f.sameTime(due, d.DueAt())
		f.sameTime(f.row(id).created, d.CreatedAt())
		f.NoError(msg.Context().Err())
		msg.Ack()
		take(f, msg.Context().Done(), "the end of the message's context")
		_, ok := outbox.DeliveryFrom(f.ctx())
		f.False(ok)
	})
}

func TestOBX052_ANackedMessageIsDeliveredAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.subscriber()
		messages := f.subscribe(s, "orders")
		id := f.enqueue(outbox.Message{Topic: "orders", UUID: "u", Payload: []byte("p")})[0]
		for attempt := 1; attempt <= 5; attempt++ {
			msg := f.receive(messages)
			d := f.delivery(msg)
			f.Equal(id, d.MessageID())
			f.Equal(attempt, d.Attempt())
			f.Equal("u", msg.UUID)
			f.Equal("p", string(msg.Payload))
			if attempt < 5 {
				d.SetErr(fmt.Errorf("failure %d", attempt))
				msg.Nack()
			} else {
				msg.Ack()
			}
		}
		r := f.becomes(id, outbox.Done)
		f.Equal(4, r.retries)
		f.Equal("failure 4", r.lastError)
	})
}

func TestOBX053_NoTwoHandlersHaveOneMessage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const messages, subscribers, lease = 30, 3, 3 * time.Second
		f.enqueueN("orders", messages)
		var mu sync.Mutex
		inside := map[outbox.MessageID]context.Context{} // of the handler that has it
		done := map[outbox.MessageID]bool{}
		twice := 0
		finished := make(chan struct{})
		for range subscribers {
			// The leases are shorter than the handlers: only renewing keeps others away.
			s := f.subscriber(func(c *outbox.SubscriberConfig) { c.LeaseDuration, c.MaxInFlight = lease, 10 })
			in := f.subscribe(s, "orders")
			go func() {
				for msg := range in {
					d, _ := outbox.DeliveryFrom(msg.Context())
					mu.Lock()
					if other := inside[d.MessageID()]; other != nil && other.Err() == nil {
						twice++
					}
					inside[d.MessageID()] = msg.Context()
					mu.Unlock()
					go func() {
						timer := time.NewTimer(lease + 100*time.Millisecond)
						defer timer.Stop()
						<-timer.C
						mu.Lock()
						defer mu.Unlock()
						alive := msg.Context().Err() == nil
						if alive {
							delete(inside, d.MessageID())
						}
						if seq, _ := seam.Delivery(d).Claim(); d.Attempt() == 1 && seq%4 == 0 {
							msg.Nack()
							return
						}
						msg.Ack()
						if !alive || done[d.MessageID()] {
							return
						}
						if done[d.MessageID()] = true; len(done) == messages {
							close(finished)
						}
					}()
				}
			}()
		}
		take(f, finished, "all messages")
		f.Zero(twice)
	})
}

func TestOBX054_HandlersOfDifferentMessagesRunAtTheSameTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 20)
		s := f.subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 12 })
		messages := f.subscribe(s, "orders")
		received := f.receiveN(messages, 12)
		f.Len(f.rows("{status} = 1"), 12, "not more than MaxInFlight are claimed")
		for _, msg := range received {
			f.NoError(msg.Context().Err())
			msg.Ack()
		}
		for _, msg := range f.receiveN(messages, 8) {
			msg.Ack()
		}
	})
}

func TestOBX057_TheSubscribersBackoffDecides(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.Backoff = func(retry int) time.Duration { return time.Duration(retry+1) * 100 * time.Hour }
		})
		messages := f.subscribe(s, "orders")
		id := f.enqueueN("orders", 1)[0]
		for retry := range 3 {
			msg := f.receive(messages)
			before := f.now()
			msg.Nack()
			f.Eventually(func() bool { return f.row(id).retries == retry+1 }, patience, 2*time.Millisecond)
			delay := time.Duration(retry+1) * 100 * time.Hour
			f.between(before.Add(delay), f.now().Add(delay), f.row(id).nextAttempt)
			f.makeDue()
		}
	})
}

func TestOBX058_059_AfterTheLastAttemptAMessageFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, test := range []struct{ configured, want int }{{0, 10}, {1, 1}, {3, 3}} {
			topic := fmt.Sprintf("max %d", test.configured)
			s := f.subscriber(func(c *outbox.SubscriberConfig) {
				c.MaxAttempts = test.configured
				c.Backoff = func(int) time.Duration { return 0 }
			})
			messages := f.subscribe(s, topic)
			id := f.enqueueN(topic, 1)[0]
			for attempt := range test.want {
				msg := f.receive(messages)
				f.Equal(attempt+1, f.delivery(msg).Attempt())
				f.delivery(msg).SetErr(fmt.Errorf("failure %d", attempt+1))
				msg.Nack()
			}
			r := f.becomes(id, outbox.Failed)
			f.Equal(fmt.Sprintf("failure %d", test.want), r.lastError)
			f.NoError(s.Close())
		}

		unlimited := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxAttempts = -1
			c.Backoff = func(int) time.Duration { return 0 }
		})
		messages := f.subscribe(unlimited, "unlimited")
		f.enqueueN("unlimited", 1)
		f.exec("UPDATE {outbox_state} SET {retry_count} = 1000 WHERE {status} = 0")
		for range 15 {
			f.receive(messages).Nack()
		}
		f.receive(messages).Ack()
	})
}

// The attempts of workers that died count, too; and such a message is not given to yet another.
func TestOBX058_AMessageThatKillsItsWorkersFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		poison := f.claimOne("orders")
		f.exec("UPDATE {outbox_state} SET {retry_count} = 9")
		f.expireLeases()
		s := f.subscriber()
		messages := f.subscribe(s, "orders")
		r := f.becomes(poison.ID, outbox.Failed)
		f.Equal(10, r.retries)
		f.NotEmpty(r.lastError)
		next := f.enqueueN("orders", 1)[0]
		msg := f.receive(messages)
		f.Equal(next, f.delivery(msg).MessageID(), "the poison was not delivered")
		msg.Ack()
	})
}

func TestOBX116_PollingSlowsDownWhileThereIsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		polls := make(chan time.Time, 1000)
		pool := faults.Open(t, f.db, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			select {
			case polls <- time.Now():
			default:
			}
			return nil
		}})
		s := f.subscriberOn(pool, nil, func(c *outbox.SubscriberConfig) {
			c.PollInterval, c.MaxPollInterval, c.LeaseDuration = 2*time.Millisecond, 64*time.Millisecond, time.Hour
		})
		f.subscribe(s, t.Name()) // a topic that no other test wakes
		var last time.Time
		var gaps []time.Duration
		for range 12 {
			now, _ := take(f, polls, "a poll")
			if !last.IsZero() {
				gaps = append(gaps, now.Sub(last))
			}
			last = now
		}
		var total time.Duration
		for _, gap := range gaps {
			total += gap
		}
		f.Greater(total, 200*time.Millisecond, "2, 4, 8 … 64, 64 … ms: %v", gaps)
		f.NoError(s.Close())
	})
}

func TestOBX116_AWakeUpEndsTheWait(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		wakeups := make(chan string)
		s := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.PollInterval, c.MaxPollInterval, c.Wakeups = time.Hour, time.Hour, wakeups
		})
		topic := "topic of " + f.config.Schema + t.Name()[len(t.Name())-8:] // wake-ups are of the whole process
		messages := f.subscribe(s, topic)
		other := f.newOutbox(f.db.DB)

		f.enqueueN(topic, 1) // an enqueue on a pool wakes
		f.receive(messages).Ack()

		p := f.publisher(f.db.DB)
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, _ *sql.Tx) error { // InTx wakes once it has committed
			msg := message.NewMessage("in tx", nil)
			msg.SetContext(ctx)
			return p.Publish(topic, msg)
		}))
		f.receive(messages).Ack()

		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		_, err = other.Enqueue(f.ctx(), tx, outbox.Message{Topic: topic})
		f.NoError(err)
		f.NoError(tx.Commit())
		outbox.Wake(topic) // after a commit of one's own
		f.receive(messages).Ack()

		// What comes from other processes comes through the channel.
		f.Eventually(func() bool { return len(f.rows("{status} = 2")) == 3 }, patience, 2*time.Millisecond)
		f.exec("UPDATE {outbox_state} SET {status} = 0, {processed_at} = NULL, {worker_id} = NULL")
		wakeups <- "another topic"
		wakeups <- topic
		for _, msg := range f.receiveN(messages, 3) {
			msg.Ack()
		}
		close(wakeups) // leaves polling as it is
		f.enqueueN(topic, 1)
		f.receive(messages).Ack()
	})
}

func TestASubscriberRefusesWhatMakesNoSense(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for field, option := range map[string]func(*outbox.SubscriberConfig){
			"MaxInFlight":         func(c *outbox.SubscriberConfig) { c.MaxInFlight = -1 },
			"MaxInFlightPerTopic": func(c *outbox.SubscriberConfig) { c.MaxInFlight, c.MaxInFlightPerTopic = 5, 6 },
			"MaxAttempts":         func(c *outbox.SubscriberConfig) { c.MaxAttempts = -2 },
			"LeaseDuration":       func(c *outbox.SubscriberConfig) { c.LeaseDuration = 25 * time.Hour },
			"PollInterval":        func(c *outbox.SubscriberConfig) { c.PollInterval = -1 },
			"MaxPollInterval":     func(c *outbox.SubscriberConfig) { c.PollInterval, c.MaxPollInterval = 2, 1 },
			"DrainTimeout":        func(c *outbox.SubscriberConfig) { c.DrainTimeout = -1 },
			"UnhandledAfter":      func(c *outbox.SubscriberConfig) { c.UnhandledAfter = -2 },
			"HandlerLog":          func(c *outbox.SubscriberConfig) { c.HandlerLog = 4 },
		} {
			config := outbox.SubscriberConfig{Dialect: f.config.Dialect, Schema: f.config.Schema}
			option(&config)
			_, err := outbox.NewSubscriber(f.db.DB, config, nil)
			f.requireField(err, "SubscriberConfig."+field)
		}
		_, err := outbox.NewSubscriber(nil, outbox.SubscriberConfig{Dialect: f.config.Dialect}, nil)
		f.ErrorIs(err, base.ErrNilDB)
		_, err = outbox.NewSubscriber(f.db.DB, outbox.SubscriberConfig{}, nil)
		f.requireField(err, "SubscriberConfig.Dialect")
		s := f.subscriber()
		for _, topic := range []string{"", "a ", tooLong[0]} {
			_, err := s.Subscribe(f.ctx(), topic)
			f.requireField(err, "Topic")
		}
		f.NoError(s.Close())
		_, err = s.Subscribe(f.ctx(), "orders")
		f.ErrorIs(err, outbox.ErrClosed)
	})
}
