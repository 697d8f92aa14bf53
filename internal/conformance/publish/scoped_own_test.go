package publish

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// Database/sql tells nobody that a caller's own transaction is committed: what was not flushed before is named at Close.
func TestScopedACommitWithoutAFlushIsAnErrorAtClose(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p, err := outbox.NewPublisher(f.DB.DB, f.config(scoped), nil)
		f.NoError(err)
		publish := func(uuid string, flush bool) {
			tx, err := f.DB.BeginTx(t.Context(), nil)
			f.NoError(err)
			ctx := outbox.WithTx(t.Context(), tx)
			f.NoError(p.Publish(topic, msg(ctx, uuid)))
			f.Zero(f.visible(tx))
			if flush {
				f.NoError(p.Flush(ctx))
				f.Equal(1, f.visible(tx))
			}
			f.NoError(tx.Commit())
			f.ErrorIs(p.Publish(topic, msg(ctx, "too late")), sql.ErrTxDone)
		}
		publish("flushed", true)
		f.Exec("DELETE FROM {outbox}")
		publish("forgotten one", false)
		publish("forgotten two", false)
		for range 2 {
			err = p.Close()
			f.ErrorContains(err, `"forgotten one"`)
			f.ErrorContains(err, `"forgotten two"`)
			f.NotContains(err.Error(), `"flushed"`)
			f.NotContains(err.Error(), "too late")
		}
		f.ErrorIs(p.Publish(topic, msg(t.Context(), "closed")), outbox.ErrClosed)
	})
}

func TestScopedAFlushAfterTheCommitSaysWhatIsLost(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped) // its Close has nothing more to say
		tx, err := f.DB.BeginTx(t.Context(), nil)
		f.NoError(err)
		ctx := outbox.WithTx(t.Context(), tx)
		f.NoError(p.Publish(topic, msg(ctx, "1")))
		f.NoError(tx.Commit())
		err = p.Flush(ctx)
		f.ErrorIs(err, sql.ErrTxDone)
		f.ErrorContains(err, `"1"`)
		f.NoError(p.Flush(ctx))
	})
}

func TestScopedOnAPublisherOfATransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tx, err := f.DB.BeginTx(t.Context(), nil)
		f.NoError(err)
		p := f.publisher(tx, scoped)
		f.NoError(p.Publish(topic, msg(t.Context(), "0"), msg(t.Context(), "1")))
		f.Zero(f.visible(tx))
		f.NoError(p.Flush(t.Context()))
		f.NoError(tx.Commit())
		f.NoError(f.inTx(func(_ context.Context, tx *sql.Tx) error {
			return f.publisher(tx, scoped).Publish(topic, msg(t.Context(), "2"))
		}), "InTx flushes for it")
		f.Equal(numbers(0, 3), f.uuids())
	})
}

func TestScopedWithoutATransactionIsImmediate(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		f.NoError(p.Publish(topic, msg(t.Context(), "0")))
		f.NoError(p.Flush(t.Context()))
		f.Equal(numbers(0, 1), f.uuids())
	})
}

// Hooks run when everything is written, and may publish themselves.
func TestScopedAHookMayPublishAndPanic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := f.publisher(f.DB.DB)
		var p *outbox.Publisher
		var again *message.Message
		p = f.publisher(f.DB.DB, scoped, func(c *outbox.PublisherConfig) {
			c.Hooks.OnPublish = func(outbox.PublishEvent) {
				if m := again; m != nil {
					again = nil
					f.NoError(p.Publish(topic, m))
					f.NoError(other.Publish(topic, msg(m.Context(), "2")))
				}
			}
		})
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
			again = msg(ctx, "1")
			return p.Publish(topic, msg(ctx, "0"))
		}))
		f.Equal(numbers(0, 3), f.uuids())

		panics := f.publisher(f.DB.DB, scoped, func(c *outbox.PublisherConfig) {
			c.Hooks.OnPublish = func(outbox.PublishEvent) { panic("boom") }
		})
		f.Panics(func() {
			_ = f.inTx(func(ctx context.Context, _ *sql.Tx) error { return panics.Publish(topic, msg(ctx, "rolled back")) })
		})
		f.Equal(numbers(0, 3), f.uuids())
	})
}
