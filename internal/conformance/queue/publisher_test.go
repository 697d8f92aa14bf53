package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

func TestPublishStoresWatermillsMessages(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.Publisher(f.DB.DB)
		first := message.NewMessage("1", []byte("\x00one"))
		first.Metadata.Set("k", "v")
		first.Metadata.Set("correlation_id", "cause")
		second := &message.Message{UUID: "1"} // the same uuid, nil payload, nil metadata
		f.NoError(p.Publish("orders", first, second))
		claimed := f.Claim("orders")
		f.Len(claimed, 2)
		f.Equal("1", claimed[0].UUID)
		f.Equal("\x00one", string(claimed[0].Payload))
		f.Equal("v", claimed[0].Headers["k"])
		f.Equal("cause", claimed[0].CorrelationID)
		f.Equal("1", claimed[1].UUID)
		f.Empty(claimed[1].Payload)
		f.Empty(claimed[1].Headers)
	})
}

func TestTrap_PublishWithNoMessages(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) { // not even the table is needed
		f.NoError(f.Publisher(f.DB.DB).Publish("orders"))
		f.NoError(f.Publisher(nil, func(c *outbox.PublisherConfig) { c.RequireTx = true }).Publish("orders"))
	})
}

func TestPublishHonoursDelayHeaders(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.Publisher(f.DB.DB)
		until := f.Now().Add(2 * time.Hour).Truncate(time.Second)
		publish := func(uuid string, metadata message.Metadata) error {
			msg := message.NewMessage(uuid, nil)
			msg.Metadata = metadata
			return p.Publish("orders", msg)
		}
		before := f.Now()
		f.NoError(publish("for", message.Metadata{delay.DelayedForKey: "3h"}))
		f.NoError(publish("until", message.Metadata{delay.DelayedUntilKey: until.Format(time.RFC3339)}))
		f.NoError(publish("both", message.Metadata{delay.DelayedUntilKey: until.Format(time.RFC3339), delay.DelayedForKey: "90m"}))
		f.NoError(publish("past", message.Metadata{delay.DelayedUntilKey: until.Add(-24 * time.Hour).Format(time.RFC3339), delay.DelayedForKey: "1h"}))
		made := message.NewMessage("made by Watermill", nil)
		delay.Message(made, delay.For(5*time.Hour))
		f.NoError(p.Publish("orders", made))

		claimed := f.Claim("orders")
		f.Len(claimed, 1)
		f.Equal("past", claimed[0].UUID, "a message that is published again with its old headers is not delayed again")
		rows := f.Rows("{status} = 0")
		f.Between(before.Add(3*time.Hour), f.Now().Add(3*time.Hour), rows[0].NextAttempt)
		f.SameTime(until, rows[1].NextAttempt)
		f.SameTime(until, rows[2].NextAttempt)
		f.WithinDuration(before.Add(5*time.Hour), rows[3].NextAttempt, time.Minute)

		f.RequireField(publish("bad", message.Metadata{delay.DelayedUntilKey: "tomorrow"}), "Metadata["+delay.DelayedUntilKey+"]")
		f.RequireField(publish("bad", message.Metadata{delay.DelayedForKey: "a while"}), "Metadata["+delay.DelayedForKey+"]")
		f.Equal(5, f.Count())
	})
}

// One publisher serves many transactions, each found in the context of the messages.
func TestPublishFindsTheTransactionInTheMessages(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.Publisher(f.DB.DB)
		in := func(tx *sql.Tx, uuid string) *message.Message {
			msg := message.NewMessage(uuid, nil)
			if tx != nil {
				msg.SetContext(outbox.WithTx(f.Context(), tx))
			}
			return msg
		}
		for _, commit := range []bool{true, false} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(p.Publish("orders", in(tx, fmt.Sprint("in tx, committed: ", commit)), in(tx, "second")))
			f.RequireField(p.Publish("orders", in(tx, "in tx"), in(nil, "alone")), "messages")
			f.RequireField(p.Publish("orders", in(nil, "alone"), in(tx, "in tx")), "messages")
			if commit {
				f.NoError(tx.Commit())
			} else {
				f.NoError(tx.Rollback())
			}
			f.Error(p.Publish("orders", in(tx, "too late")))
		}
		f.NoError(p.Publish("orders", in(nil, "alone")))
		var uuids []string
		for _, c := range f.Claim("orders") {
			uuids = append(uuids, c.UUID)
		}
		f.Equal([]string{"in tx, committed: true", "second", "alone"}, uuids)

		ctx := outbox.WithTx(f.Context(), nil)
		_, found := outbox.TxFrom(ctx)
		f.False(found)
	})
}

func TestPublishRefusesTwoTransactions(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		p := f.Publisher(f.DB.DB)
		var messages []*message.Message
		for i := range 2 {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			defer func() { f.NoError(tx.Rollback()) }()
			messages = append(messages, message.NewMessage(fmt.Sprint(i), nil))
			messages[i].SetContext(outbox.WithTx(f.Context(), tx))
		}
		f.RequireField(p.Publish("orders", messages...), "messages")
	})
}

func TestAPublisherOnATransactionRefusesAnother(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(_ context.Context, mine *sql.Tx) error {
			return outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg := message.NewMessage("1", nil)
				msg.SetContext(ctx)
				f.RequireField(f.Publisher(mine).Publish("orders", msg), "messages")
				return nil
			})
		}))
		f.Equal(0, f.Count())
	})
}

func TestAPublisherOnATransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(_ context.Context, tx *sql.Tx) error {
			p := f.Publisher(tx, func(c *outbox.PublisherConfig) { c.RequireTx = true })
			return p.Publish("orders", message.NewMessage("1", nil))
		}))
		f.Equal(1, f.Count())
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		f.NoError(f.Publisher(tx).Publish("orders", message.NewMessage("2", nil)))
		f.NoError(tx.Rollback())
		f.Equal(1, f.Count())
	})
}

// A transaction of another pool may be of another database, whose outbox the messages are not for.
func TestTrap_ATransactionOfAnotherPool(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := f.DB.Reopen(t)
		for _, p := range []*outbox.Publisher{
			f.Publisher(other.DB), f.Publisher(other.DB, func(c *outbox.PublisherConfig) { c.RequireTx = true }),
			f.Publisher(other.DB, func(c *outbox.PublisherConfig) { c.Flush = outbox.Scoped }),
		} {
			f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				msg := message.NewMessage("1", nil)
				msg.SetContext(ctx)
				err := p.Publish("orders", msg)
				f.RequireField(err, "messages")
				f.ErrorContains(err, "WithTx")
				msg.SetContext(outbox.WithTx(ctx, tx))
				f.NoError(p.Publish("said to be the same", msg))
				return p.Flush(msg.Context())
			}))
			f.NoError(outbox.InTx(f.Context(), other.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg := message.NewMessage("2", nil)
				msg.SetContext(ctx)
				return p.Publish("its own", msg)
			}))
		}
		f.Empty(f.Rows("{topic} = 'orders'"))
		f.Len(f.Rows("{topic} = 'said to be the same'"), 3)
		f.Len(f.Rows("{topic} = 'its own'"), 3)
	})
}

func TestRequireTxRefusesToPublishOutside(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		require := func(c *outbox.PublisherConfig) { c.RequireTx = true }
		p := f.Publisher(f.DB.DB, require)
		f.ErrorIs(p.Publish("orders", message.NewMessage("1", nil)), outbox.ErrTxRequired)
		withoutPool := f.Publisher(nil, require)
		f.ErrorIs(withoutPool.Publish("orders", message.NewMessage("1", nil)), outbox.ErrTxRequired)
		for _, publisher := range []*outbox.Publisher{p, withoutPool} {
			f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg := message.NewMessage("in tx", nil)
				msg.SetContext(ctx)
				return publisher.Publish("orders", msg)
			}))
		}
		f.Equal(2, f.Count())
		_, err := outbox.NewPublisher(nil, outbox.PublisherConfig{Dialect: f.Config.Dialect}, nil)
		f.ErrorIs(err, base.ErrNilDB)
		_, err = outbox.NewPublisher((*sql.DB)(nil), outbox.PublisherConfig{Dialect: f.Config.Dialect}, nil)
		f.ErrorIs(err, base.ErrNilDB)
	})
}

func TestPublishIsAllOrNone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.Publisher(f.DB.DB)
		bad := message.NewMessage("bad", nil)
		bad.Metadata.Set("k", "\xff")
		err := p.Publish("orders", message.NewMessage("good", nil), bad)
		f.RequireField(err, "Headers")
		f.Equal(0, f.Count())
		f.RequireField(p.Publish("", message.NewMessage("1", nil)), "Topic")
		f.RequireField(p.Publish(suite.TooLong[0], message.NewMessage("1", nil)), "Topic")
	})
}

func TestAClosedPublisherRefuses(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.Publisher(f.DB.DB)
		f.NoError(p.Close())
		f.NoError(p.Close())
		f.ErrorIs(p.Publish("orders", message.NewMessage("1", nil)), outbox.ErrClosed)
		f.NoError(f.DB.PingContext(f.Context()), "the database is the caller's")
	})
}

// The context of a message is that of its publishing.
func TestPublishEndsWithTheContextOfItsMessage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		msg := message.NewMessage("1", nil)
		msg.SetContext(ctx)
		f.ErrorIs(f.Publisher(f.DB.DB).Publish("orders", msg), context.Canceled)
		f.Equal(0, f.Count())
	})
}

func TestInTxInsideInTxIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, failure := range []error{suite.ErrBoom, nil} {
			err := outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, outer *sql.Tx) error {
				return errors.Join(failure, outbox.InTx(ctx, f.DB.DB, func(ctx context.Context, inner *sql.Tx) error {
					f.Same(outer, inner)
					_, err := f.Outbox.Enqueue(ctx, inner, outbox.Message{Topic: "orders"})
					return err
				}))
			})
			f.Equal(failure != nil, err != nil)
		}
		f.Equal(1, f.Count())
	})
}

func TestHooksTellWhatHappens(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var published []outbox.PublishEvent
		var claims []outbox.ClaimEvent
		var settlements []outbox.SettleEvent
		o := f.NewOutbox(f.DB.DB, func(c *outbox.Config) {
			c.Hooks = outbox.Hooks{
				OnPublish: func(e outbox.PublishEvent) { published = append(published, e) },
				OnClaim:   func(e outbox.ClaimEvent) { claims = append(claims, e) },
				OnSettle:  func(e outbox.SettleEvent) { settlements = append(settlements, e) },
			}
		})
		_, err := o.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "a"}, outbox.Message{Topic: "b"}, outbox.Message{Topic: "a"})
		f.NoError(err)
		f.Len(published, 1)
		f.Equal([]string{"a", "b"}, published[0].Topics)
		f.Equal(3, published[0].Messages)
		f.NoError(published[0].Err)
		f.Positive(published[0].Took)

		claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("a", "b")})
		f.NoError(err)
		f.Len(claims, 1)
		f.Equal(3, claims[0].Messages)
		_, err = o.Settle(f.Context(), f.DB.DB, append(suite.Settled(outbox.Ack, claimed[0]), suite.Settled(outbox.Retry, claimed[1])[0],
			outbox.Settlement{Receipt: outbox.Receipt{Seq: 1 << 40}, Outcome: outbox.Fail}))
		f.NoError(err)
		f.Len(settlements, 1)
		f.Equal(1, settlements[0].Refused)
		f.Equal(map[outbox.Outcome]int{outbox.Ack: 1, outbox.Retry: 1, outbox.Fail: 1}, settlements[0].Outcomes)

		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error { return suite.ErrBoom }})
		_, err = o.Enqueue(f.Context(), pool, outbox.Message{Topic: "a"})
		f.ErrorIs(err, suite.ErrBoom)
		f.ErrorIs(published[1].Err, suite.ErrBoom)
	})
}

// Messages of one call may have different topics, of which the first may come again after others; what only one of them has is
// in no other.
func TestMessagesOfACallKeepWhatIsTheirs(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		topics := []string{"a", "b", "a", "c", "b", "a"}
		for name, test := range map[string]struct {
			log       outbox.LogMode
			streamKey string
		}{
			"queue":   {},
			"streams": {streamKey: "s"},
			"log":     {log: outbox.QueueAndLog, streamKey: "s"},
		} {
			o := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Log = test.log })
			var messages []outbox.Message
			for i, topic := range topics {
				messages = append(messages, outbox.Message{Topic: name + topic, UUID: strconv.Itoa(i), StreamKey: test.streamKey})
			}
			messages[0].Headers = map[string]string{"only": "the first"}
			ids, err := o.Enqueue(f.Context(), f.DB.DB, messages...)
			f.NoError(err)
			stored, err := o.Get(f.Context(), ids...)
			f.NoError(err)
			byUUID := map[string]string{}
			for _, r := range stored {
				byUUID[r.UUID] = r.Topic
			}
			for _, m := range messages {
				f.Equal(m.Topic, byUUID[m.UUID], name)
			}
			for topic, want := range map[string]int{"a": 3, "b": 2, "c": 1} {
				claimed := f.Claim(name + topic)
				f.Len(claimed, want, "%s of %s", topic, name)
				for _, c := range claimed {
					f.Equal(c.UUID == "0", c.Headers["only"] == "the first", "message %s of %s", c.UUID, name)
				}
			}
		}
	})
}

func TestFailedListsTheDeadLetters(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var want []outbox.MessageID
		for i := range 5 {
			c := f.ClaimOne([]string{"a", "b"}[i%2])
			f.NoError(f.Outbox.Fail(f.Context(), c.Receipt.Owner, fmt.Errorf("failure %d", i), c.Receipt.Seq))
			f.Exec("UPDATE {outbox} SET {created_at} = {past}")
			f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", c.ID)
			want = append([]outbox.MessageID{c.ID}, want...)
		}
		f.Settle(suite.Settled(outbox.Ack, f.ClaimOne("a"))...)
		ids := func(params outbox.ListParams) (ids []outbox.MessageID) {
			records, err := f.Outbox.Failed(f.Context(), params)
			f.NoError(err)
			for _, r := range records {
				f.Equal(outbox.Failed, r.Status)
				f.Contains(r.LastError, "failure")
				ids = append(ids, r.ID)
			}
			return ids
		}
		f.ElementsMatch(want, ids(outbox.ListParams{}))
		f.ElementsMatch([]outbox.MessageID{want[1], want[3]}, ids(outbox.ListParams{Topic: "b"}))
		f.Len(ids(outbox.ListParams{Limit: 2}), 2)
		// Those that failed most recently come first.
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {now} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", want[2])
		f.Equal(want[2:3], ids(outbox.ListParams{Limit: 1}))
		for _, limit := range []int{-1, 1001} {
			_, err := f.Outbox.Failed(f.Context(), outbox.ListParams{Limit: limit})
			f.RequireField(err, "ListParams.Limit")
		}
	})
}
