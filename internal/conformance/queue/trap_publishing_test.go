package queue_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

func TestTrap_AnExactDelayWinsOverItsRoundedTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for i := range 10 {
			msg := message.NewMessage(fmt.Sprint(i), nil)
			delay.Message(msg, delay.For(900*time.Millisecond))
			f.NoError(f.Publisher(f.DB.DB).Publish("delayed", msg))
			r := f.Rows("{uuid} = '%d'", i)[0]
			f.SameTime(r.Created.Add(900*time.Millisecond), r.Due)
		}
		old := message.NewMessage("old", nil)
		delay.Message(old, delay.For(time.Hour))
		old.Metadata[delay.DelayedUntilKey] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
		f.NoError(f.Publisher(f.DB.DB).Publish("delayed", old))
		f.True(f.Rows("{uuid} = 'old'")[0].IsDue, "a message that was published before is not delayed again")
	})
}

func TestTrap_DueAtOutsideTheYears(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, year := range []int{-1, 0, 10_000, 290_000} {
			_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", DueAt: time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)})
			f.RequireField(err, "DueAt")
		}
		f.Zero(f.Count())
	})
}

func TestTrap_StreamKeysOfAPublisher(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		publish := func(id, header string, options ...func(*outbox.PublisherConfig)) error {
			msg := message.NewMessage(id, nil)
			if header != "" {
				msg.Metadata[outbox.HeaderStreamKey] = header
			}
			return f.Publisher(f.DB.DB, options...).Publish("orders", msg)
		}
		byID := func(c *outbox.PublisherConfig) {
			c.StreamKey = func(topic string, msg *message.Message) string { return strings.TrimPrefix(topic+msg.UUID, "orders2") }
		}
		f.NoError(publish("1", "customer 7"))
		f.NoError(publish("1", "customer 7", byID))
		f.NoError(publish("2", "customer 7", byID))
		f.NoError(publish("2", ""))
		var keys []string
		for _, c := range f.Claim("orders") {
			keys = append(keys, c.StreamKey)
		}
		f.Equal([]string{"customer 7", "orders1", "customer 7", ""}, keys)
		for _, bad := range []string{" customer", "customer\t", strings.Repeat("x", 256), "\xff"} {
			f.RequireField(publish("1", bad), "StreamKey")
			f.RequireField(publish("1", "", func(c *outbox.PublisherConfig) {
				c.StreamKey = func(string, *message.Message) string { return bad }
			}), "StreamKey")
		}
	})
}

func TestLong_HeadersCountTowardsABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		log := &faults.Log{}
		pool := faults.Open(t, f.DB, log.Hooks())
		messages := make([]outbox.Message, 20)
		for i := range messages {
			messages[i] = outbox.Message{Topic: "orders", Headers: map[string]string{"h": strings.Repeat("x", 1<<20)}}
		}
		_, err := f.NewOutbox(pool).Enqueue(f.Context(), pool, messages...)
		f.NoError(err)
		longest := 0
		for _, s := range log.Take() {
			texts := 0
			for _, arg := range s.Args {
				switch text := arg.(type) {
				case string:
					texts += len(text)
				case sql.NullString:
					texts += len(text.String)
				}
			}
			longest = max(longest, texts)
		}
		f.Greater(longest, 1<<20)
		f.Less(longest, 9<<20)
		f.Equal(len(messages), f.Count())
	})
}

// What is sent in several statements on a *sql.Conn is sent whole, also where nobody has begun a transaction on it.
func TestTrap_AConnectionWithoutATransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		insert := 0
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if len(s.Args) > 0 {
				if insert++; insert == 2 {
					return &faults.Error{Number: 50000, State: "XX000", Result: 19}
				}
			}
			return nil
		}})
		conn, err := pool.Conn(f.Context())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		o := f.NewOutbox(pool)
		_, err = o.Enqueue(f.Context(), conn, make1100("orders")...)
		f.Error(err)
		f.NotErrorIs(err, outbox.ErrUnknownOutcome)
		f.Zero(f.Count(), "all or none")

		_, err = o.Enqueue(f.Context(), conn, make1100("orders")...)
		f.NoError(err)
		f.Equal(1100, f.Count())

		tx, err := conn.BeginTx(f.Context(), nil)
		f.NoError(err)
		_, err = o.Enqueue(f.Context(), conn, make1100("orders")...)
		f.NoError(err)
		f.NoError(tx.Rollback())
		f.Equal(1100, f.Count(), "a transaction that the caller has begun is the caller's to end")
	})
}

func TestTrap_AnIDThatIsThereAlready(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id, err := f.Outbox.NewID()
		f.NoError(err)
		again := outbox.Message{ID: id, Topic: "orders"}
		f.Equal([]outbox.MessageID{id}, f.Enqueue(again))
		_, err = f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders"}, again)
		f.ErrorIs(err, outbox.ErrDuplicateID)
		f.NotErrorIs(err, outbox.ErrUnknownOutcome)
		f.Equal(1, f.Count(), "all or none")
		settings := []string{"SELECT 1"}
		if f.DB.Name == testdb.SQLServer {
			settings = append(settings, "SET XACT_ABORT ON") // as many callers do
		}
		for i, setting := range settings {
			f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, setting)
				f.NoError(err)
				_, err = f.Outbox.Enqueue(ctx, tx, again)
				f.ErrorIs(err, outbox.ErrDuplicateID)
				_, err = f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "the transaction goes on"})
				return err
			}), setting)
			f.Equal(2+i, f.Count())
		}
	})
}

func TestTrap_AJoinThatIsStartedAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		unique, err := f.Outbox.NewID()
		f.NoError(err)
		params := join.StartParams{ID: join.ID(unique), ExpectedSteps: 1}
		f.Equal(params.ID, f.Start(c, params))
		id, err := c.Start(f.Context(), nil, params)
		f.ErrorIs(err, join.ErrExists)
		f.Equal(params.ID, id)

		wait := join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}, Headers: map[string]string{"traceparent": "00-1"}}
		wait.ID, err = f.Outbox.NewID()
		f.NoError(err)
		sent, err := c.EnqueueWait(f.Context(), nil, wait)
		f.NoError(err)
		f.Equal(wait.ID, sent)
		_, err = c.EnqueueWait(f.Context(), nil, wait)
		f.ErrorIs(err, outbox.ErrDuplicateID)

		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := c.Start(ctx, tx, params)
			f.ErrorIs(err, join.ErrExists)
			_, err = c.EnqueueWait(ctx, tx, wait)
			f.ErrorIs(err, outbox.ErrDuplicateID)
			return c.AttachByReport(ctx, tx, id, outbox.MessageID{1})
		}))
		f.Equal(1, f.JoinCount())

		f.RunWaits(c)
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, outbox.MessageID{1}))
		f.Equal("00-1", f.Continues(wait.ID, "next").Headers["traceparent"], "the trace goes on")
		f.Len(f.Rows("{topic} = 'next'"), 1)
	})
}
