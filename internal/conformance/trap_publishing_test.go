package conformance

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
			f.NoError(f.publisher(f.db.DB).Publish("delayed", msg))
			r := f.rows("{uuid} = '%d'", i)[0]
			f.sameTime(r.created.Add(900*time.Millisecond), r.due)
		}
		old := message.NewMessage("old", nil)
		delay.Message(old, delay.For(time.Hour))
		old.Metadata[delay.DelayedUntilKey] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
		f.NoError(f.publisher(f.db.DB).Publish("delayed", old))
		f.True(f.rows("{uuid} = 'old'")[0].isDue, "a message that was published before is not delayed again")
	})
}

func TestTrap_DueAtOutsideTheYears(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, year := range []int{-1, 0, 10_000, 290_000} {
			_, err := f.outbox.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders", DueAt: time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)})
			f.requireField(err, "DueAt")
		}
		f.Zero(f.count())
	})
}

func TestTrap_StreamKeysOfAPublisher(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		publish := func(id, header string, options ...func(*outbox.PublisherConfig)) error {
			msg := message.NewMessage(id, nil)
			if header != "" {
				msg.Metadata[outbox.HeaderStreamKey] = header
			}
			return f.publisher(f.db.DB, options...).Publish("orders", msg)
		}
		byID := func(c *outbox.PublisherConfig) {
			c.StreamKey = func(topic string, msg *message.Message) string { return strings.TrimPrefix(topic+msg.UUID, "orders2") }
		}
		f.NoError(publish("1", "customer 7"))
		f.NoError(publish("1", "customer 7", byID))
		f.NoError(publish("2", "customer 7", byID))
		f.NoError(publish("2", ""))
		var keys []string
		for _, c := range f.claim("orders") {
			keys = append(keys, c.StreamKey)
		}
		f.Equal([]string{"customer 7", "orders1", "customer 7", ""}, keys)
		for _, bad := range []string{" customer", "customer\t", strings.Repeat("x", 256), "\xff"} {
			f.requireField(publish("1", bad), "StreamKey")
			f.requireField(publish("1", "", func(c *outbox.PublisherConfig) {
				c.StreamKey = func(string, *message.Message) string { return bad }
			}), "StreamKey")
		}
	})
}

func TestLong_HeadersCountTowardsABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		log := &faults.Log{}
		pool := faults.Open(t, f.db, log.Hooks())
		messages := make([]outbox.Message, 20)
		for i := range messages {
			messages[i] = outbox.Message{Topic: "orders", Headers: map[string]string{"h": strings.Repeat("x", 1<<20)}}
		}
		_, err := f.newOutbox(pool).Enqueue(f.ctx(), pool, messages...)
		f.NoError(err)
		longest := 0
		for _, s := range log.Take() {
			if len(s.Args) > 0 {
				argument, ok := s.Args[0].(string)
				f.True(ok)
				longest = max(longest, len(argument))
			}
		}
		f.Less(longest, 9<<20)
		f.Equal(len(messages), f.count())
	})
}

// What is sent in several statements on a *sql.Conn is sent whole, also where nobody has begun a transaction on it.
func TestTrap_AConnectionWithoutATransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		insert := 0
		pool := faults.Open(t, f.db, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if len(s.Args) > 0 {
				if insert++; insert == 2 {
					return &faults.Error{Number: 50000, State: "XX000", Result: 19}
				}
			}
			return nil
		}})
		conn, err := pool.Conn(f.ctx())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		o := f.newOutbox(pool)
		_, err = o.Enqueue(f.ctx(), conn, make1100("orders")...)
		f.Error(err)
		f.NotErrorIs(err, outbox.ErrUnknownOutcome)
		f.Zero(f.count(), "all or none")

		_, err = o.Enqueue(f.ctx(), conn, make1100("orders")...)
		f.NoError(err)
		f.Equal(1100, f.count())

		tx, err := conn.BeginTx(f.ctx(), nil)
		f.NoError(err)
		_, err = o.Enqueue(f.ctx(), conn, make1100("orders")...)
		f.NoError(err)
		f.NoError(tx.Rollback())
		f.Equal(1100, f.count(), "a transaction that the caller has begun is the caller's to end")
	})
}

func TestTrap_AnIDThatIsThereAlready(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id, err := f.outbox.NewID()
		f.NoError(err)
		again := outbox.Message{ID: id, Topic: "orders"}
		f.Equal([]outbox.MessageID{id}, f.enqueue(again))
		_, err = f.outbox.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders"}, again)
		f.ErrorIs(err, outbox.ErrDuplicateID)
		f.NotErrorIs(err, outbox.ErrUnknownOutcome)
		f.Equal(1, f.count(), "all or none")
		settings := []string{"SELECT 1"}
		if f.db.Name == testdb.SQLServer {
			settings = append(settings, "SET XACT_ABORT ON") // as many callers do
		}
		for i, setting := range settings {
			f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, setting)
				f.NoError(err)
				_, err = f.outbox.Enqueue(ctx, tx, again)
				f.ErrorIs(err, outbox.ErrDuplicateID)
				_, err = f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "the transaction goes on"})
				return err
			}), setting)
			f.Equal(2+i, f.count())
		}
	})
}

func TestTrap_AJoinThatIsStartedAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		unique, err := f.outbox.NewID()
		f.NoError(err)
		params := join.StartParams{ID: join.ID(unique), ExpectedSteps: 1}
		f.Equal(params.ID, f.start(c, params))
		id, err := c.Start(f.ctx(), nil, params)
		f.ErrorIs(err, join.ErrExists)
		f.Equal(params.ID, id)

		wait := join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}, Headers: map[string]string{"traceparent": "00-1"}}
		wait.ID, err = f.outbox.NewID()
		f.NoError(err)
		sent, err := c.EnqueueWait(f.ctx(), nil, wait)
		f.NoError(err)
		f.Equal(wait.ID, sent)
		_, err = c.EnqueueWait(f.ctx(), nil, wait)
		f.ErrorIs(err, outbox.ErrDuplicateID)

		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := c.Start(ctx, tx, params)
			f.ErrorIs(err, join.ErrExists)
			_, err = c.EnqueueWait(ctx, tx, wait)
			f.ErrorIs(err, outbox.ErrDuplicateID)
			return c.AttachByReport(ctx, tx, id, outbox.MessageID{1})
		}))
		f.Equal(1, f.joinCount())

		f.runWaits(c)
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, outbox.MessageID{1}))
		f.Equal("00-1", f.continues(wait.ID, "next").Headers["traceparent"], "the trace goes on")
		f.Len(f.rows("{topic} = 'next'"), 1)
	})
}
