package subscriber_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
)

func TestOBX047_ExpiredLeasesAreReapedWithoutAnybodyAsking(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.ClaimOne("orders")
		unread := f.ClaimOne("a topic that nobody reads")
		f.ExpireLeases() // their workers have died
		reaped := make(chan int, 100)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.LeaseDuration = time.Second
			c.Hooks.OnReap = func(e outbox.ReapEvent) { reaped <- e.Messages }
		})
		msg := f.Receive(f.Subscribe(s, "orders"))
		f.Equal(2, f.Delivery(msg).Attempt(), "a reap counts an attempt")
		msg.Ack()
		f.Becomes(unread.ID, outbox.Ready)
		n, _ := suite.Take(f.T, reaped, "the hook")
		f.Positive(n)
	})
}

func TestOBX048_AMessageGoesToItsTopic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber()
		a, b, c := f.Subscribe(s, "a"), f.Subscribe(s, "b"), f.Subscribe(s, "c")
		want := map[string]<-chan *message.Message{"a": a, "b": b}
		for topic := range want {
			f.EnqueueN(topic, 20)
		}
		for topic, messages := range want {
			for _, msg := range f.ReceiveN(messages, 20) {
				f.Equal(topic, f.Delivery(msg).Topic())
				msg.Ack()
			}
		}
		f.Empty(c)
		f.NoError(s.Close())
		f.Len(f.Rows("{status} = 2"), 40)
	})
}

func TestOBX049_ATopicWithoutAHandlerIsNamedAndItsMessagesStay(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		backlog := make(chan []outbox.TopicBacklog, 1000)
		id := f.EnqueueN("unhandled", 1)[0]
		s := f.SubscriberOn(f.DB.DB, book, func(c *outbox.SubscriberConfig) {
			c.UnhandledAfter = 5 * time.Millisecond
			c.Hooks.OnBacklog = func(topics []outbox.TopicBacklog) { backlog <- topics }
		})
		f.Subscribe(s, "handled")
		line := f.Await(book, "ERROR", "without a handler")
		f.Equal("unhandled", line.Fields["names"])
		topics, _ := suite.Take(f.T, backlog, "the gauge")
		f.Len(topics, 2, "with the one that is handled and empty")
		f.Equal("unhandled", topics[0].Topic)
		f.Equal(1, topics[0].Waiting)
		f.False(topics[0].Handled)
		f.NoError(s.Close())
		r := f.Row(id)
		f.Equal(int(outbox.Ready), r.Status)
		f.Zero(r.Retries)
	})
}

func TestOBX050_AHandlersFailureDecidesByPolicy(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.Backoff = func(int) time.Duration { return time.Hour } })
		ids := map[string]outbox.MessageID{}
		f.Route(s, nil, func(msg *message.Message) error {
			switch msg.UUID {
			case "error":
				return suite.ErrBoom
			case "permanent":
				return fmt.Errorf("wrapped: %w", outbox.Permanent(suite.ErrBoom))
			case "panic":
				panic("the handler has a bug")
			}
			return nil
		})
		for _, name := range []string{"error", "permanent", "panic", "fine"} {
			ids[name] = f.Enqueue(outbox.Message{Topic: "orders", UUID: name})[0]
		}
		f.Becomes(ids["fine"], outbox.Done)
		r := f.Becomes(ids["permanent"], outbox.Failed)
		f.Equal("wrapped: "+suite.ErrBoom.Error(), r.LastError)
		for name, text := range map[string]string{"error": suite.ErrBoom.Error(), "panic": "the handler has a bug"} {
			f.Eventually(func() bool { return f.Row(ids[name]).Retries == 1 }, suite.Patience, 2*time.Millisecond)
			r = f.Row(ids[name])
			f.Equal(int(outbox.Ready), r.Status, name)
			f.Contains(r.LastError, text)
			f.False(r.IsDue, "%s waits for its backoff", name)
		}
	})
}

func TestOBX051_AHandlerGetsTheWholeMessageAndWhatCancelsIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		type key struct{}
		s := f.Subscriber()
		ctx := context.WithValue(context.WithoutCancel(f.Context()), key{}, "a value of the subscription")
		messages, err := s.Subscribe(ctx, "orders")
		f.NoError(err)
		due := f.Now().Add(-time.Minute)
		id := f.Enqueue(outbox.Message{
			UUID: "uuid", Topic: "orders", Payload: []byte("\x00payload"), Headers: map[string]string{"k": "v"}, CorrelationID: "cause", DueAt: due})[0]
		msg := f.Receive(messages)
		f.Equal("uuid", msg.UUID)
		f.Equal("\x00payload", string(msg.Payload))
		f.Equal("v", msg.Metadata.Get("k"))
		f.Equal("cause", msg.Metadata.Get("correlation_id"))
		f.Equal("a value of the subscription", msg.Context().Value(key{}))
		d := f.Delivery(msg)
		f.Equal(id, d.MessageID())
		seq, owner := seam.Delivery(d).Claim()
		f.Equal(f.Row(id).Seq, seq)
		f.Equal(f.Row(id).Owner, owner)
		f.Equal("orders", d.Topic())
		f.Equal(1, d.Attempt())
		f.SameTime(due, d.DueAt())
		f.SameTime(f.Row(id).Created, d.CreatedAt())
		f.NoError(msg.Context().Err())
		msg.Ack()
		suite.Take(f.T, msg.Context().Done(), "the end of the message's context")
		_, ok := outbox.DeliveryFrom(f.Context())
		f.False(ok)
	})
}

func TestOBX052_ANackedMessageIsDeliveredAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber()
		messages := f.Subscribe(s, "orders")
		id := f.Enqueue(outbox.Message{Topic: "orders", UUID: "u", Payload: []byte("p")})[0]
		for attempt := 1; attempt <= 5; attempt++ {
			msg := f.Receive(messages)
			d := f.Delivery(msg)
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
		r := f.Becomes(id, outbox.Done)
		f.Equal(4, r.Retries)
		f.Equal("failure 4", r.LastError)
	})
}

func TestOBX053_NoTwoHandlersHaveOneMessage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const messages, subscribers, lease = 30, 3, 3 * time.Second
		f.EnqueueN("orders", messages)
		var mu sync.Mutex
		inside := map[outbox.MessageID]context.Context{} // of the handler that has it
		done := map[outbox.MessageID]bool{}
		twice := 0
		finished := make(chan struct{})
		for range subscribers {
			// The leases are shorter than the handlers: only renewing keeps others away.
			s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.LeaseDuration, c.MaxInFlight = lease, 10 })
			in := f.Subscribe(s, "orders")
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
		suite.Take(f.T, finished, "all messages")
		f.Zero(twice)
	})
}

func TestOBX054_HandlersOfDifferentMessagesRunAtTheSameTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 20)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 12 })
		messages := f.Subscribe(s, "orders")
		received := f.ReceiveN(messages, 12)
		f.Len(f.Rows("{status} = 1"), 12, "not more than MaxInFlight are claimed")
		for _, msg := range received {
			f.NoError(msg.Context().Err())
			msg.Ack()
		}
		for _, msg := range f.ReceiveN(messages, 8) {
			msg.Ack()
		}
	})
}

func TestOBX057_TheSubscribersBackoffDecides(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.Backoff = func(retry int) time.Duration { return time.Duration(retry+1) * 100 * time.Hour }
		})
		messages := f.Subscribe(s, "orders")
		id := f.EnqueueN("orders", 1)[0]
		for retry := range 3 {
			msg := f.Receive(messages)
			before := f.Now()
			msg.Nack()
			f.Eventually(func() bool { return f.Row(id).Retries == retry+1 }, suite.Patience, 2*time.Millisecond)
			delay := time.Duration(retry+1) * 100 * time.Hour
			f.Between(before.Add(delay), f.Now().Add(delay), f.Row(id).NextAttempt)
			f.MakeDue()
		}
	})
}

func TestOBX058_059_AfterTheLastAttemptAMessageFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, test := range []struct{ configured, want int }{{0, 10}, {1, 1}, {3, 3}} {
			topic := fmt.Sprintf("max %d", test.configured)
			s := f.Subscriber(func(c *outbox.SubscriberConfig) {
				c.MaxAttempts = test.configured
				c.Backoff = func(int) time.Duration { return 0 }
			})
			messages := f.Subscribe(s, topic)
			id := f.EnqueueN(topic, 1)[0]
			for attempt := range test.want {
				msg := f.Receive(messages)
				f.Equal(attempt+1, f.Delivery(msg).Attempt())
				f.Delivery(msg).SetErr(fmt.Errorf("failure %d", attempt+1))
				msg.Nack()
			}
			r := f.Becomes(id, outbox.Failed)
			f.Equal(fmt.Sprintf("failure %d", test.want), r.LastError)
			f.NoError(s.Close())
		}

		unlimited := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxAttempts = -1
			c.Backoff = func(int) time.Duration { return 0 }
		})
		messages := f.Subscribe(unlimited, "unlimited")
		f.EnqueueN("unlimited", 1)
		f.Exec("UPDATE {outbox_state} SET {retry_count} = 1000 WHERE {status} = 0")
		for range 15 {
			f.Receive(messages).Nack()
		}
		f.Receive(messages).Ack()
	})
}

// The attempts of workers that died count, too; and such a message is not given to yet another.
func TestOBX058_AMessageThatKillsItsWorkersFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		poison := f.ClaimOne("orders")
		f.Exec("UPDATE {outbox_state} SET {retry_count} = 9")
		f.ExpireLeases()
		s := f.Subscriber()
		messages := f.Subscribe(s, "orders")
		r := f.Becomes(poison.ID, outbox.Failed)
		f.Equal(10, r.Retries)
		f.NotEmpty(r.LastError)
		next := f.EnqueueN("orders", 1)[0]
		msg := f.Receive(messages)
		f.Equal(next, f.Delivery(msg).MessageID(), "the poison was not delivered")
		msg.Ack()
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
			config := outbox.SubscriberConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}
			option(&config)
			_, err := outbox.NewSubscriber(f.DB.DB, config, nil)
			f.RequireField(err, "SubscriberConfig."+field)
		}
		_, err := outbox.NewSubscriber(nil, outbox.SubscriberConfig{Dialect: f.Config.Dialect}, nil)
		f.ErrorIs(err, base.ErrNilDB)
		_, err = outbox.NewSubscriber(f.DB.DB, outbox.SubscriberConfig{}, nil)
		f.RequireField(err, "SubscriberConfig.Dialect")
		s := f.Subscriber()
		for _, topic := range []string{"", "a ", suite.TooLong[0]} {
			_, err := s.Subscribe(f.Context(), topic)
			f.RequireField(err, "Topic")
		}
		f.NoError(s.Close())
		_, err = s.Subscribe(f.Context(), "orders")
		f.ErrorIs(err, outbox.ErrClosed)
	})
}
