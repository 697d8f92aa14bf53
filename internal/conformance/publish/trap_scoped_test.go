package publish

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A transaction in which something was collected may wait for a lock of one in which somebody publishes. The database cannot
// see such a cycle if its other half is in this process.
func TestTrap_ScopedAPublishWaitsForNoOtherTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, rolledBack := range map[string]bool{"its statement runs": false, "its rollback waits for its statement": true} {
			const waits = "SELECT 1"
			sent, release := make(chan struct{}), make(chan struct{})
			pool := faults.Open(t, f.DB.Open(t), faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
				if s.Text == waits {
					close(sent)
					<-release
				}
				return nil
			}})
			p, err := outbox.NewPublisher(f.DB.DB, f.config(scoped), nil)
			f.NoError(err)
			ctx, cancel := context.WithCancel(t.Context())
			waiting, err := pool.BeginTx(ctx, nil)
			f.NoError(err)
			f.NoError(p.Publish(topic, msg(outbox.WithTx(t.Context(), waiting), "never flushed")))
			answered := make(chan error, 1)
			go func() { _, err := waiting.ExecContext(context.WithoutCancel(ctx), waits); answered <- err }()
			<-sent
			if rolledBack {
				cancel()
				f.Eventually(func() bool { return errors.Is(waiting.Commit(), sql.ErrTxDone) }, testoutbox.Patience, time.Millisecond)
			}

			published := make(chan error, 1)
			go func() {
				published <- f.inOwnTx(func(ctx context.Context) error {
					return errors.Join(p.Publish(topic, msg(ctx, name)), p.Flush(ctx))
				})
			}()
			select {
			case err := <-published:
				f.NoError(err, name)
			case <-time.After(testoutbox.Patience / 4):
				t.Errorf("%s: Publish in another transaction waits for it", name)
			}
			close(release)
			f.NoError(<-answered)
			cancel()
			f.ErrorContains(p.Close(), "never flushed")
		}
		f.Len(f.uuids(), 2)
	})
}

// inOwnTx runs do with a caller's own transaction in its context, and commits it.
func (f *fixture) inOwnTx(do func(ctx context.Context) error) error {
	tx, err := f.DB.BeginTx(f.T.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // a no-op after the commit
	if err := do(outbox.WithTx(f.T.Context(), tx)); err != nil {
		return err
	}
	return tx.Commit()
}

// Messages left in a dropped transaction are logged before Close, and then forgotten.
func TestTrap_ScopedTellsOfWhatNobodyCanFlush(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		p, err := outbox.NewPublisher(f.DB.DB, f.config(scoped), book)
		f.NoError(err)
		f.NoError(f.inOwnTx(func(ctx context.Context) error { return p.Publish(topic, msg(ctx, "forgotten")) }))
		f.Eventually(func() bool {
			runtime.GC()
			f.NoError(f.inOwnTx(func(ctx context.Context) error {
				return errors.Join(p.Publish(topic, msg(ctx, "flushed")), p.Flush(ctx))
			}))
			return slices.ContainsFunc(book.Lines(), func(l suite.LogLine) bool { return strings.Contains(l.String(), "forgotten") })
		}, testoutbox.Patience, time.Millisecond)
		err = p.Close()
		f.ErrorContains(err, "forgotten")
		f.NotContains(err.Error(), "flushed \"")
		f.NotContains(f.uuids(), "forgotten")
	})
}

// What settles, or attaches, in a caller's own transaction flushes as Flush does.
func TestTrap_ScopedAFlushByAnotherCallIsOne(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped) // its Close has nothing to name
		tx, err := f.DB.BeginTx(t.Context(), nil)
		f.NoError(err)
		ctx := outbox.WithTx(t.Context(), tx)
		for _, uuid := range []string{"0", "2"} {
			f.NoError(p.Publish(topic, msg(ctx, uuid)))
			_, err = f.Outbox.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: topic, UUID: uuid + " enqueued"})
			f.NoError(err)
		}
		f.NoError(tx.Commit())
		f.Equal([]string{"0", "0 enqueued", "2", "2 enqueued"}, f.uuids())
	})
}

// What is done in the transaction of InTx wakes after the commit, even if it was given the transaction without its context.
func TestTrap_InTxWakesForWhatWasGivenTheTransactionAlone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		alone := "given alone on " + f.DB.Name // other tests wake, too, and for other topics
		woken := make(chan struct{}, 1)
		defer outbox.OnWake("", func(topics []string) {
			if slices.Contains(topics, alone) {
				woken <- struct{}{} // has room: it is taken before the next commit
			}
		})()
		for _, strategy := range []func(*outbox.PublisherConfig){with(outbox.Immediate), scoped} {
			f.NoError(f.inTx(func(_ context.Context, tx *sql.Tx) error {
				if err := f.publisher(tx, strategy).Publish(alone, msg(t.Context(), "1")); err != nil {
					return err
				}
				f.Empty(woken, "before the commit")
				return nil
			}))
			<-woken
		}
	})
}
