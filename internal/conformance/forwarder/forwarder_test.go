package forwarder_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
)

func TestMessagesArriveInOrderAsTheyWerePublished(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 100)
		_, err := f.Outbox.Outbox.Enqueue(t.Context(), f.DB.DB, outbox.Message{
			UUID: "the last", Topic: "orders", Payload: []byte{0, 1, 255}, CorrelationID: "cause", StreamKey: "a stream",
			Headers: map[string]string{"name": "Zürich 😀"},
		})
		f.NoError(err)
		f.start()
		f.Becomes(outbox.Done, 101)
		got := f.broker.uuids()
		f.Len(got, 101)
		at := slices.Index(got, "the last") // of a stream: between others it comes at any time
		last := f.broker.got[at]
		for i, uuid := range slices.Delete(got, at, at+1) {
			f.Equal(fmt.Sprint(i), uuid)
		}
		f.Equal([]byte{0, 1, 255}, []byte(last.Payload))
		f.Equal("Zürich 😀", last.Metadata["name"])
		f.Equal("cause", last.Metadata["correlation_id"])
		f.Equal("a stream", last.Metadata[outbox.HeaderStreamKey])
		f.Equal("1", last.Metadata[forwarder.HeaderAttempt])
		f.NoError(new(outbox.MessageID).UnmarshalText([]byte(last.Metadata[outbox.HeaderMessageID])))
	})
}

func TestAnOutageHoldsMessagesAndSpendsNoAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = 10 * time.Second // a busy machine loses none of it
		f.broker.answers(away)
		f.Enqueue("orders", 0, 200)
		seen := &states{}
		fw := f.start(func(c *forwarder.Config) {
			c.OnState = seen.add
			c.Subscriber.MaxInFlight = 30
			c.Subscriber.LeaseDuration = lease
		})
		f.Becomes(outbox.InProgress, 30)
		for begun := time.Now(); time.Since(begun) < lease+time.Second; { // longer than the lease
			f.triedAgain(50)
		}
		f.Equal(forwarder.Open, fw.State())
		f.Equal(30, f.Count(outbox.InProgress), "no more are claimed than may be in flight, and none is given back")
		f.Equal(170, f.Count(outbox.Ready))
		f.Empty(f.broker.uuids())

		f.broker.answers(takes)
		f.Becomes(outbox.Done, 200)
		f.Equal(0, f.Attempts())
		f.Len(f.broker.uuids(), 200, "none is published twice")
		f.Equal(forwarder.Closed, fw.State())
		f.Equal([]forwarder.State{forwarder.Open, forwarder.Closed}, seen.all())
	})
}

// A publisher that says which message failed, and one that does not.
func TestAMessageThatFailsIsRefusedWhileOthersGoOn(t *testing.T) {
	for name, each := range map[string]bool{"each": true, "whole": false} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				f.broker.answers(except(errors.New("bad apple"), each, "7", "42"))
				f.Enqueue("orders", 0, 100)
				f.start(func(c *forwarder.Config) { c.Subscriber.MaxAttempts = 2 })
				f.Becomes(outbox.Done, 98)
				// Others have to get through for the forwarder to know.
				for from := 100; f.Count(outbox.Failed) < 2; from++ {
					f.Less(from, 1000)
					f.Enqueue("orders", from, 1)
					f.Eventually(func() bool { return slices.Contains(f.broker.uuids(), fmt.Sprint(from)) }, testoutbox.Patience, time.Millisecond)
				}
				for _, r := range f.Rows() {
					switch r.UUID {
					case "7", "42":
						f.Equal(testoutbox.Row{UUID: r.UUID, Status: outbox.Failed, RetryCount: 1, LastError: "bad apple"}, r)
					default:
						f.Equal(0, r.RetryCount)
					}
				}
				f.NotContains(f.broker.uuids(), "7")
			})
		})
	}
}

func TestARefusedMessageSpendsAttemptsThoughNothingElseGetsThrough(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.broker.answers(except(forwarder.Refused(errors.New("no such queue")), true, "0"))
		f.Enqueue("orders", 0, 1)
		seen := &states{}
		f.start(func(c *forwarder.Config) {
			c.OnState = seen.add
			c.Subscriber.MaxAttempts = 3
		})
		f.Becomes(outbox.Failed, 1)
		f.Equal([]testoutbox.Row{{UUID: "0", Status: outbox.Failed, RetryCount: 2, LastError: "no such queue"}}, f.Rows())
		f.Equal(3, f.broker.tries())
		f.Empty(seen.all(), "it is no outage")
	})
}

// The broker that comes back and refuses is there.
func TestARefusalEndsAnOutage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.broker.answers(away)
		f.Enqueue("orders", 0, 1)
		fw := f.start(func(c *forwarder.Config) { c.Subscriber.MaxAttempts = 1 })
		f.triedAgain(3)
		f.Equal(forwarder.Open, fw.State())
		f.broker.answers(except(forwarder.Refused(errors.New("no such queue")), false, "0"))
		f.Becomes(outbox.Failed, 1)
		f.Equal(forwarder.Closed, fw.State())
	})
}

// That others get through makes an outage of a part of the broker no fault of the message.
func TestAnUnavailableMessageIsHeldWhileOthersGoOn(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.broker.answers(except(outbox.Unavailable(errAway), true, "3"))
		f.Enqueue("orders", 0, 100)
		f.start()
		f.Becomes(outbox.Done, 99)
		f.triedAgain(20)
		f.broker.answers(takes)
		f.Becomes(outbox.Done, 100)
		f.Equal(0, f.Attempts())
	})
}

// A destination that is away holds up its own messages, in their order, and no others of the topic.
func TestADestinationThatIsAwayStarvesNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		even := func(uuid string) bool { return strings.ContainsAny(uuid[len(uuid)-1:], "02468") }
		f.broker.answers(func(topic string, messages []*message.Message) error {
			if topic == "there" {
				return nil
			}
			return &forwarder.BatchError{Errs: slices.Repeat([]error{outbox.Unavailable(errAway)}, len(messages))}
		})
		f.Enqueue("orders", 0, 6)
		f.start(func(c *forwarder.Config) {
			c.Destination = func(_ string, msg *message.Message) (string, error) {
				if even(msg.UUID) {
					return "away", nil
				}
				return "there", nil
			}
		})
		f.Becomes(outbox.Done, 3)
		f.Enqueue("orders", 6, 4)
		f.Becomes(outbox.Done, 5)
		f.Equal([]string{"1", "3", "5", "7", "9"}, f.broker.uuids())

		f.broker.answers(takes)
		f.Becomes(outbox.Done, 10)
		f.Equal([]string{"0", "2", "4", "6", "8"}, f.broker.uuids()[5:])
		f.Equal(0, f.Attempts())
	})
}

func TestAPermanentErrorFailsAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.broker.answers(except(outbox.Permanent(errors.New("too large")), true, "5"))
		f.Enqueue("orders", 0, 10)
		f.start()
		f.Becomes(outbox.Done, 9)
		f.Becomes(outbox.Failed, 1)
		f.Equal(testoutbox.Row{UUID: "5", Status: outbox.Failed, LastError: "too large"}, f.Rows()[5])
	})
}

func TestWhatTheBrokerHasIsMarkedPublished(t *testing.T) {
	for name, marks := range map[string]bool{"if asked for": true, "not by default": false} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				f.broker.answers(except(outbox.Permanent(errors.New("too large")), true, "refused"))
				ids, err := f.Outbox.Outbox.Enqueue(t.Context(), f.DB.DB,
					outbox.Message{Topic: "orders", UUID: "taken"}, outbox.Message{Topic: "orders", UUID: "refused"})
				f.NoError(err)
				f.start(func(c *forwarder.Config) { c.MarkPublished = marks })
				f.Becomes(outbox.Done, 1)
				f.Becomes(outbox.Failed, 1)
				records, err := f.Get(t.Context(), ids...)
				f.NoError(err)
				want := middleware.Stored
				if marks {
					want |= middleware.Published
				}
				f.Equal(want, records[0].Stages)
				f.Equal(middleware.Stored, records[1].Stages, "the broker does not have it")
			})
		})
	}
}

func TestTheDestinationIsChosenForEachMessage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue("orders", 0, 20)
		f.start(func(c *forwarder.Config) {
			c.Destination = func(topic string, msg *message.Message) (string, error) {
				switch msg.UUID {
				case "3":
					return "", errors.New("unknown customer")
				case "4":
					return "", nil
				case "5", "6", "12":
					return topic + ".special", nil
				}
				return topic, nil
			}
		})
		f.Becomes(outbox.Done, 18)
		f.Becomes(outbox.Failed, 2)
		rows := f.Rows()
		f.Contains(rows[3].LastError, "unknown customer")
		f.Contains(rows[4].LastError, "empty")
		f.Contains(rows[4].LastError, "orders")
		for i, msg := range f.broker.got {
			f.Equal(msg.UUID == "5" || msg.UUID == "6" || msg.UUID == "12", f.broker.topics[i] == "orders.special", msg.UUID)
		}
	})
}

func TestCloseInAnOutageGivesBackAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.broker.answers(away)
		f.Enqueue("orders", 0, 50)
		fw := f.start(func(c *forwarder.Config) {
			c.RetryMin, c.RetryMax = time.Hour, time.Hour // nobody waits for the next try
			c.Subscriber.DrainTimeout = time.Hour
		})
		f.Becomes(outbox.InProgress, 40)
		f.Eventually(func() bool { return fw.State() == forwarder.Open }, testoutbox.Patience, time.Millisecond)
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := fw.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
		f.Equal(50, f.Count(outbox.Ready))
		f.Equal(0, f.Attempts())

		f.broker.answers(takes)
		f.start()
		f.Becomes(outbox.Done, 50)
		f.Len(f.broker.uuids(), 50)
	})
}

// Close does not wait for a broker that does not answer longer than DrainTimeout, if the publisher heeds the messages'
// contexts; what it published then is not acknowledged.
func TestCloseInterruptsAPublish(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.broker.answers(func(_ string, messages []*message.Message) error {
			<-messages[0].Context().Done()
			return messages[0].Context().Err()
		})
		f.Enqueue("orders", 0, 5)
		fw := f.start(func(c *forwarder.Config) { c.Subscriber.DrainTimeout = time.Millisecond })
		f.Becomes(outbox.InProgress, 5)
		f.NoError(fw.Close())
		f.Equal(5, f.Count(outbox.Ready))
		f.Equal(0, f.Attempts())
		f.Equal(forwarder.Closed, fw.State(), "it is no outage")
	})
}

func TestManyForwardersShareTheMessages(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		topics := []string{"orders", "bills"}
		for _, topic := range topics {
			f.Enqueue(topic, 0, 300)
		}
		for range 3 {
			f.startOn(f.DB.Reopen(t).DB, func(c *forwarder.Config) { c.Topics, c.Concurrency = topics, 3 })
		}
		f.Becomes(outbox.Done, 600)
		f.Len(f.broker.uuids(), 600, "none is published twice")
		f.Equal(0, f.Attempts())
	})
}

// A message that another worker has by now is not acknowledged, and its context ends; the others go on.
func TestALostLeaseIsNotAcknowledged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		stolen := make(chan struct{})
		publishing := make(chan struct{}, 1)
		f.broker.answers(func(_ string, messages []*message.Message) error {
			if messages[0].UUID != "0" {
				return nil
			}
			select {
			case publishing <- struct{}{}:
			default:
			}
			<-messages[0].Context().Done()
			<-stolen
			return nil // the broker has it all the same
		})
		f.Enqueue("orders", 0, 1)
		f.start(func(c *forwarder.Config) { c.Subscriber.LeaseDuration = 10 * time.Second })
		<-publishing
		// Another worker holds it for an hour, by the table.
		f.Exec("UPDATE {outbox_state} SET {owner_token} = '00000000-0000-0000-0000-000000000001'")
		f.Exec("UPDATE {outbox_lease} SET {owner_token} = '00000000-0000-0000-0000-000000000001', {locked_until} = %s", inAnHour[f.DB.Name])
		f.Enqueue("orders", 1, 5)
		close(stolen)
		f.Becomes(outbox.Done, 5)
		f.Equal(outbox.InProgress, f.Rows()[0].Status)
		f.Equal(0, f.Attempts())
	})
}

var inAnHour = map[string]string{
	testdb.SQLite:    "CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + 3600000",
	testdb.Postgres:  "clock_timestamp() + interval '1 hour'",
	testdb.SQLServer: "DATEADD(HOUR, 1, SYSUTCDATETIME())",
}

// A message that is not published within MaxHandlerTime spends an attempt, as with any handler, whatever the publisher says, and
// the row has both reasons.
func TestTrap_TheEndOfMaxHandlerTimeIsTheReason(t *testing.T) {
	atLast := func(err error) func(string, []*message.Message) error {
		return func(_ string, messages []*message.Message) error {
			<-messages[0].Context().Done()
			return err
		}
	}
	for name, test := range map[string]struct {
		answer func(string, []*message.Message) error
		reason string
	}{
		"hangs and fails":          {atLast(errAway), errAway.Error()},
		"hangs and is unavailable": {atLast(outbox.Unavailable(errAway)), errAway.Error()},
		"hangs and is permanent":   {atLast(outbox.Permanent(errAway)), errAway.Error()},
		"held while it is away":    {away, errAway.Error()},
		"held as unavailable":      {except(outbox.Unavailable(errAway), true, "0"), errAway.Error()},
		"says why": {func(_ string, messages []*message.Message) error {
			<-messages[0].Context().Done()
			return fmt.Errorf("the context has ended: %w", context.Cause(messages[0].Context()))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				f.broker.answers(test.answer)
				f.Enqueue("orders", 0, 1)
				f.start(func(c *forwarder.Config) {
					c.Subscriber.MaxHandlerTime, c.Subscriber.DrainTimeout, c.Subscriber.MaxAttempts = 500*time.Millisecond, time.Minute, 2
				})
				f.Becomes(outbox.Failed, 1)
				r := f.Rows()[0]
				f.Equal(1, r.RetryCount)
				f.Contains(r.LastError, test.reason)
				f.Equal(1, strings.Count(r.LastError, "MaxHandlerTime"), r.LastError)
			})
		})
	}
}

// Those behind it in its stream have run out of time with it, and were not tried.
func TestTrap_TheEndOfMaxHandlerTimeCostsTheFirstOfAStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.broker.answers(func(_ string, messages []*message.Message) error {
			<-messages[0].Context().Done()
			return errAway
		})
		for range 3 {
			_, err := f.Outbox.Outbox.Enqueue(t.Context(), f.DB.DB, outbox.Message{Topic: "orders", StreamKey: "a"})
			f.NoError(err)
		}
		f.start(func(c *forwarder.Config) {
			c.BatchSize = 1
			c.Subscriber.MaxHandlerTime, c.Subscriber.DrainTimeout, c.Subscriber.MaxAttempts = 500*time.Millisecond, time.Minute, 2
		})
		f.Becomes(outbox.Failed, 1)
		rows := f.Rows()
		f.Equal([]int{1, 0, 0}, []int{rows[0].RetryCount, rows[1].RetryCount, rows[2].RetryCount})
	})
}

func TestItRunsOnceUntilItsContextEnds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		fw, err := forwarder.New(f.DB.DB, f.broker, f.config(), nil)
		f.NoError(err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- fw.Run(ctx) }()
		<-fw.Running()
		f.Enqueue("orders", 0, 1)
		f.Becomes(outbox.Done, 1)
		cancel()
		f.NoError(<-ended)
		f.NoError(fw.Close())
		f.ErrorIs(fw.Run(t.Context()), outbox.ErrClosed)
	})
}

func TestASecondRunIsAnError(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		fw := f.start()
		f.ErrorContains(fw.Run(t.Context()), "already running")
		f.Enqueue("orders", 0, 1)
		f.Becomes(outbox.Done, 1) // the first goes on
	})
}

func TestCloseBeforeRun(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		fw, err := forwarder.New(f.DB.DB, f.broker, f.config(), nil)
		f.NoError(err)
		f.NoError(fw.Close())
		f.ErrorIs(fw.Run(t.Context()), outbox.ErrClosed)
	})
}

func TestBadConfigurationIsNamed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for field, change := range map[string]func(*forwarder.Config){
			"Config.Topics":                 func(c *forwarder.Config) { c.Topics = nil },
			"Config.BatchSize":              func(c *forwarder.Config) { c.BatchSize = -1 },
			"Config.Concurrency":            func(c *forwarder.Config) { c.Concurrency = -1 },
			"Config.RetryMin":               func(c *forwarder.Config) { c.RetryMin = time.Minute },
			"Config.Subscriber.MaxAttempts": func(c *forwarder.Config) { c.Subscriber.MaxAttempts = -2 },
		} {
			_, err := forwarder.New(f.DB.DB, f.broker, f.config(change), nil)
			requireField(t, err, field)
		}
		_, err := forwarder.New(f.DB.DB, f.broker, f.config(func(c *forwarder.Config) { c.Topics = []string{"a", "a"} }), nil)
		requireField(t, err, "Config.Topics")
		_, err = forwarder.New(f.DB.DB, nil, f.config(), nil)
		requireField(t, err, "publisher")
		_, err = forwarder.New(nil, f.broker, f.config(), nil)
		f.ErrorIs(err, base.ErrNilDB)

		// What only Subscribe finds out ends Run.
		fw, err := forwarder.New(f.DB.DB, f.broker, f.config(func(c *forwarder.Config) { c.Topics = []string{"good", " bad "} }), nil)
		f.NoError(err)
		f.ErrorContains(fw.Run(t.Context()), `" bad "`)
	})
}

func requireField(t *testing.T, err error, field string) {
	t.Helper()
	var e *outbox.FieldError
	require.ErrorAs(t, err, &e)
	require.Equal(t, field, e.Field)
}

func TestMarksOfErrors(t *testing.T) {
	cause := errors.New("cause")
	require.NoError(t, forwarder.Refused(nil))
	require.True(t, forwarder.IsRefused(fmt.Errorf("wrapped: %w", forwarder.Refused(cause))))
	require.ErrorIs(t, forwarder.Refused(cause), cause)
	require.False(t, forwarder.IsRefused(cause))
	batch := &forwarder.BatchError{Errs: []error{nil, cause, errAway}}
	require.ErrorIs(t, batch, errAway)
	require.Equal(t, "2 of 3 messages were not published, the first because: cause", batch.Error())
}

// What waits for a broker that is away is handled, by the forwarder: another Subscriber of the process does not warn of it.
func TestTopicsOfAForwarderAreHandled(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.broker.answers(away)
		f.start(func(c *forwarder.Config) { c.Topics, c.Subscriber.MaxInFlight = []string{"relayed"}, 1 }) // the others wait
		f.Enqueue("relayed", 0, 3)
		f.Enqueue("typo", 3, 1)
		f.triedAgain(1)

		var warnings bytes.Buffer
		backlogs := make(chan []outbox.TopicBacklog)
		config := f.Subscriber()
		config.UnhandledAfter = 5 * time.Millisecond
		ctx, stop := context.WithTimeout(f.T.Context(), testoutbox.Patience)
		defer stop()
		config.Hooks.OnBacklog = func(topics []outbox.TopicBacklog) {
			select {
			case backlogs <- topics:
			case <-ctx.Done():
			}
		}
		s, err := outbox.NewSubscriber(f.DB.DB, config, watermill.NewSlogLogger(slog.New(slog.NewTextHandler(&warnings, nil))))
		f.NoError(err)
		_, err = s.Subscribe(f.T.Context(), "orders")
		f.NoError(err)
		handled := map[string]bool{}
		for len(handled) < 3 && ctx.Err() == nil { // until each of them has been due when it looked
			select {
			case topics := <-backlogs:
				for _, b := range topics {
					if b.Waiting > 0 || b.Topic == "orders" {
						handled[b.Topic] = b.Handled
					}
				}
			case <-ctx.Done():
			}
		}
		f.Equal(map[string]bool{"orders": true, "relayed": true, "typo": false}, handled)
		stop()
		f.NoError(s.Close())
		f.Contains(warnings.String(), "names=typo")
		f.NotContains(warnings.String(), "relayed")
	})
}
