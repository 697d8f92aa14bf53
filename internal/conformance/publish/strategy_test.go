package publish

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// strategies are all, with an interval that a test can wait for.
var strategies = map[string]func(*outbox.PublisherConfig){
	"immediate": with(outbox.Immediate), "scoped": scoped, "interval": every(time.Millisecond), "batch": batch,
}

func forEachStrategy(t *testing.T, test func(t *testing.T, f *fixture, strategy func(*outbox.PublisherConfig))) {
	t.Helper()
	forEach(t, func(t *testing.T, f *fixture) {
		for name, strategy := range strategies {
			t.Run(name, func(t *testing.T) {
				test(t, &fixture{Outbox: testoutbox.New(t, f.DB.Open(t))}, strategy)
			})
		}
	})
}

// TestLong_PubSub is Watermill's own suite. Those in which a strategy changes nothing are in another package.
func TestLong_PubSub(t *testing.T) {
	for _, name := range []string{"interval", "batch"} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				tests.TestPubSub(t, tests.Features{Persistent: true}, func(t *testing.T) (message.Publisher, message.Subscriber) {
					return f.pubSub(t, strategies[name])
				}, nil)
			})
		})
	}
}

func (f *fixture) pubSub(t *testing.T, strategy func(*outbox.PublisherConfig)) (message.Publisher, message.Subscriber) {
	pool := f.DB.OneOfMany(t)
	pub, err := outbox.NewPublisher(pool.DB, f.config(strategy), nil)
	require.NoError(t, err)
	config := f.Subscriber()
	config.MaxAttempts, config.DrainTimeout = -1, 100*time.Millisecond
	config.Backoff = func(int) time.Duration { return 5 * time.Millisecond }
	sub, err := outbox.NewSubscriber(pool.DB, config, nil)
	require.NoError(t, err)
	return pub, sub
}

// What is stored does not depend on the strategy: ids, times and contents are those of Immediate.
func TestEveryStrategyStoresTheSame(t *testing.T) {
	forEachStrategy(t, func(t *testing.T, f *fixture, strategy func(*outbox.PublisherConfig)) {
		p := f.publisher(f.DB.DB, strategy)
		value := "v\x00"
		if suite.Lacks(t, f.DB, suite.UnescapesJSON) != "" {
			value = "v"
		}
		until := time.Now().Add(2 * time.Hour).Truncate(time.Second)
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
			for _, ctx := range []context.Context{ctx, t.Context()} {
				if f.DB.Name == testdb.SQLite && ctx == t.Context() {
					continue // its only writer is the transaction
				}
				f.NoError(p.Publish(topic))
				first := message.NewMessageWithContext(ctx, "1", []byte("\x00one"))
				first.Metadata.Set("k", value)
				first.Metadata.Set("correlation_id", "cause")
				first.Metadata.Set(outbox.HeaderStreamKey, "customer 7")
				later := message.NewMessageWithContext(ctx, "2", nil)
				later.Metadata.Set(delay.DelayedUntilKey, until.Format(time.RFC3339))
				plain := &message.Message{UUID: "3"}
				plain.SetContext(ctx)
				f.NoError(p.Publish(topic, first, later, plain))
			}
			return nil
		}))
		claimed, err := f.Claim(t.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}})
		f.NoError(err)
		for _, c := range claimed {
			if c.UUID == "1" {
				f.Equal("\x00one", string(c.Payload))
				f.Equal(value, c.Headers["k"])
				f.Equal("cause", c.CorrelationID)
				f.Equal("customer 7", c.StreamKey)
			} else {
				f.Equal("3", c.UUID, "the other one is due later")
				f.Empty(c.Payload)
				f.Empty(c.Headers)
			}
			records, err := f.Get(t.Context(), c.ID)
			f.NoError(err)
			f.WithinDuration(records[0].CreatedAt, records[0].NextAttemptAt, 2*time.Millisecond, "it is due at once")
		}
		f.NotEmpty(claimed)
	})
}

// The promises of a Publisher are those of Immediate.
func TestEveryStrategyKeepsThePromisesOfAPublisher(t *testing.T) {
	forEachStrategy(t, func(t *testing.T, f *fixture, strategy func(*outbox.PublisherConfig)) {
		p, err := outbox.NewPublisher(f.DB.DB, f.config(strategy), nil)
		f.NoError(err)
		f.NoError(p.Publish(topic, msg(t.Context(), "0"), msg(t.Context(), "1")))
		f.Equal(numbers(0, 2), f.uuids(), "nil means that it is committed")
		bad := msg(t.Context(), "bad")
		bad.Metadata.Set("k", "\xff")
		var field *outbox.FieldError
		f.ErrorAs(p.Publish(topic, msg(t.Context(), "good"), bad), &field, "all or none")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		f.ErrorIs(p.Publish(topic, msg(ended, "ended")), context.Canceled)

		tx, err := f.DB.BeginTx(t.Context(), nil)
		f.NoError(err)
		ctx := outbox.WithTx(t.Context(), tx)
		f.ErrorAs(p.Publish(topic, msg(ctx, "in"), msg(t.Context(), "out")), &field)
		f.NoError(p.Publish(topic, msg(ctx, "2")))
		f.NoError(p.Flush(ctx))
		f.NoError(tx.Commit())
		f.Error(p.Publish(topic, msg(ctx, "too late")))
		f.NoError(p.Flush(t.Context()))

		f.NoError(p.Close())
		f.NoError(p.Close())
		f.ErrorIs(p.Publish(topic, msg(t.Context(), "closed")), outbox.ErrClosed)
		f.NoError(f.DB.PingContext(t.Context()), "the database is the caller's")
		f.Equal(numbers(0, 3), f.uuids())
	})
}

// A repeated id is told, and nothing is doubled.
func TestEveryStrategyInsertsAnIDOnce(t *testing.T) {
	forEachStrategy(t, func(t *testing.T, f *fixture, strategy func(*outbox.PublisherConfig)) {
		p := f.publisher(f.DB.DB, strategy, byUUID)
		id, err := f.NewID()
		f.NoError(err)
		f.NoError(p.Publish(topic, msg(t.Context(), id.String())))
		f.ErrorIs(p.Publish(topic, msg(t.Context(), id.String())), outbox.ErrDuplicateID)
		f.Len(f.uuids(), 1)
	})
}

func TestBadFlushConfigIsNamed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tx, err := f.DB.BeginTx(t.Context(), nil)
		f.NoError(err)
		defer func() { f.NoError(tx.Rollback()) }()
		refused := func(x outbox.Executor, field string, c outbox.PublisherConfig) {
			t.Helper()
			c.Dialect = testoutbox.Dialect(f.DB.Name)
			_, err := outbox.NewPublisher(x, c, nil)
			var bad *outbox.FieldError
			f.True(errors.As(err, &bad), "%v", err)
			f.Equal("PublisherConfig."+field, bad.Field)
			f.NotEmpty(bad.Reason)
		}
		db := f.DB.DB
		refused(db, "Flush", outbox.PublisherConfig{Flush: -1})
		refused(db, "Flush", outbox.PublisherConfig{Flush: 4})
		refused(db, "Flush", outbox.PublisherConfig{Flush: outbox.Batch, RequireTx: true})
		refused(nil, "Flush", outbox.PublisherConfig{Flush: outbox.Interval, RequireTx: true})
		refused(tx, "Flush", outbox.PublisherConfig{Flush: outbox.Batch})
		refused(db, "FlushInterval", outbox.PublisherConfig{Flush: outbox.Batch, FlushInterval: time.Second})
		refused(db, "FlushInterval", outbox.PublisherConfig{Flush: outbox.Interval, FlushInterval: -1})
		refused(db, "FlushInterval", outbox.PublisherConfig{Flush: outbox.Interval, FlushInterval: time.Hour})
		refused(db, "FlushMessages", outbox.PublisherConfig{Flush: outbox.Batch, FlushMessages: 1001})
		refused(db, "FlushMessages", outbox.PublisherConfig{Flush: outbox.Batch, FlushMessages: -1})
		refused(db, "FlushMessages", outbox.PublisherConfig{Flush: outbox.Scoped, FlushMessages: 10})
		refused(db, "FlushBytes", outbox.PublisherConfig{Flush: outbox.Batch, FlushBytes: 1 << 30})
		refused(db, "FlushBytes", outbox.PublisherConfig{FlushBytes: 1})
		refused(db, "FlushWaiting", outbox.PublisherConfig{Flush: outbox.Batch, FlushWaiting: -1})
		refused(db, "CloseTimeout", outbox.PublisherConfig{Flush: outbox.Batch, CloseTimeout: -1})
		refused(db, "CloseTimeout", outbox.PublisherConfig{CloseTimeout: 1})
	})
}
