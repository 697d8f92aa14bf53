package publish

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
)

var scoped = with(outbox.Scoped)

func TestScopedWritesOnceBeforeTheCommit(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		log := &faults.Log{}
		pool := faults.Open(t, f.DB, log.Hooks())
		p := f.publisher(pool, scoped)
		f.NoError(outbox.InTx(t.Context(), pool, func(ctx context.Context, _ *sql.Tx) error {
			for i := range 10 {
				f.NoError(p.Publish(topic, msg(ctx, fmt.Sprint(i))))
			}
			return nil
		}))
		sent := 0
		for _, s := range log.Take() {
			if inserts(s) {
				sent++
			}
		}
		f.Equal(1, sent)
		f.Equal(numbers(0, 10), f.uuids())
		f.Equal([]int{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, f.calls())
	})
}

func TestScopedRolledBackLeavesNothingAndWakesNobody(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var mu sync.Mutex
		var woken []string
		store := "rolled back on " + f.DB.Name
		stop := outbox.OnWake(store, func(topics []string) {
			mu.Lock()
			defer mu.Unlock()
			woken = append(woken, topics...)
		})
		defer stop()
		p := f.publisher(f.DB.DB, scoped, func(c *outbox.PublisherConfig) { c.Store = store })
		for _, flush := range []bool{false, true} {
			f.ErrorIs(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
				f.NoError(p.Publish("undone", msg(ctx, "1")))
				if flush {
					f.NoError(p.Flush(ctx))
				}
				return errBoom
			}), errBoom)
			f.Panics(func() {
				_ = f.inTx(func(ctx context.Context, _ *sql.Tx) error {
					f.NoError(p.Publish("undone", msg(ctx, "2")))
					panic("boom")
				})
			})
		}
		f.Empty(f.uuids())
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error { return p.Publish("committed", msg(ctx, "3")) }))
		mu.Lock()
		defer mu.Unlock()
		f.Contains(woken, "committed")
		f.NotContains(woken, "undone")
	})
}

func TestScopedNestedInTxFlushesOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
			f.NoError(p.Publish(topic, msg(ctx, "0")))
			f.NoError(outbox.InTx(ctx, f.DB.DB, func(ctx context.Context, _ *sql.Tx) error { return p.Publish(topic, msg(ctx, "1")) }))
			f.Empty(f.calls(), "the outermost writes")
			return p.Publish(topic, msg(ctx, "2"))
		}))
		f.Equal([]int{3, 3, 3}, f.calls())
		f.Equal(numbers(0, 3), f.uuids())
	})
}

func TestScopedTellsABadMessageAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
			f.NoError(p.Publish(topic, msg(ctx, "0")))
			var bad *outbox.FieldError
			f.ErrorAs(p.Publish(" ", msg(ctx, "bad")), &bad)
			f.ErrorAs(p.Publish(topic, msg(ctx, "good"), msg(ctx, strings.Repeat("x", 256))), &bad)
			return nil
		}))
		f.Equal(numbers(0, 1), f.uuids())
	})
}

func TestScopedAPublishAfterTheLastFlushIsIncluded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		var late *message.Message
		f.NoError(f.inTx(func(ctx context.Context, tx *sql.Tx) error {
			late = msg(ctx, "late")
			f.NoError(p.Publish(topic, msg(ctx, "0")))
			f.NoError(p.Flush(ctx))
			f.Equal(1, f.visible(tx))
			f.NoError(p.Publish(topic, msg(ctx, "1")))
			f.NoError(p.Flush(ctx))
			f.NoError(p.Flush(ctx), "with nothing to flush")
			return p.Publish(topic, msg(ctx, "2"))
		}))
		f.Equal(numbers(0, 3), f.uuids())
		f.ErrorIs(p.Publish(topic, late), sql.ErrTxDone)
	})
}

func TestScopedMoreThanAThousandRowsKeepTheirOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		const n = 2100
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
			for i := range n {
				f.NoError(p.Publish(topic, msg(ctx, fmt.Sprint(i))))
			}
			return nil
		}))
		f.Equal(numbers(0, n), f.uuids())
	})
}

// Whatever the outbox does in the transaction finds what was published before.
func TestScopedWritesFirstWhatOthersNeed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
		f.NoError(err)
		id, err := joins.Start(t.Context(), nil, join.StartParams{ExpectedSteps: 2})
		f.NoError(err)
		full, err := joins.Start(t.Context(), nil, join.StartParams{ExpectedSteps: 1})
		f.NoError(err)
		f.Enqueue("held", 100, 1)
		claimed, err := f.Claim(t.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "held"}}})
		f.NoError(err)
		step, err := f.NewID()
		f.NoError(err)

		p := f.publisher(f.DB.DB, scoped, byUUID)
		steps, err := join.NewPublisher(f.DB.DB, f.config(scoped), joins, nil)
		f.NoError(err)
		f.NoError(f.inTx(func(ctx context.Context, tx *sql.Tx) error {
			f.NoError(p.Publish(topic, msg(ctx, step.String())))
			f.NoError(joins.Attach(ctx, tx, id, step), "an attach finds its message")
			f.NoError(p.Publish(topic, msg(ctx, "1")))
			_, err := f.Settle(t.Context(), tx, []outbox.Settlement{{Receipt: claimed[0].Receipt}})
			f.NoError(err)
			f.Equal(3, f.visible(tx), "a settlement comes after it")
			f.NoError(p.Publish(topic, msg(ctx, "2")))
			_, err = f.Outbox.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: topic, UUID: "3"})
			f.NoError(err)
			f.NoError(steps.Publish(topic, msg(ctx, "4")))
			f.NoError(steps.Publish(topic, msg(join.With(ctx, full), "5")))
			f.ErrorIs(steps.Publish(topic, msg(join.With(ctx, full), "refused")), join.ErrFull, "its own error, at once")
			return p.Publish(topic, msg(ctx, "6"))
		}))
		f.Equal(append([]string{"100", step.String()}, numbers(1, 7)...), f.uuids(), "in the order of the calls")
		f.NoError(steps.Close())
	})
}

// A pool sees what is committed, as with any other strategy: it neither flushes nor waits.
func TestScopedAPoolSeesMessagesOnceTheyAreCommitted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped, byUUID)
		id, err := f.NewID()
		f.NoError(err)
		get := func() int {
			records, err := f.Get(t.Context(), id)
			f.NoError(err)
			return len(records)
		}
		f.NoError(f.inTx(func(ctx context.Context, tx *sql.Tx) error {
			f.NoError(p.Publish(topic, msg(ctx, id.String())))
			f.Zero(get())
			f.Zero(f.visible(tx), "and nothing was flushed")
			return nil
		}))
		f.Equal(1, get())
	})
}

// An operation that fails is undone to a savepoint, and with it must not go what Publish has accepted.
func TestScopedAFailedOperationUndoesNothingThatWasPublishedBefore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		taken, err := f.NewID()
		f.NoError(err)
		f.NoError(f.inTx(func(ctx context.Context, tx *sql.Tx) error {
			f.NoError(p.Publish(topic, msg(ctx, "0")))
			_, err := f.Outbox.Outbox.Enqueue(ctx, tx, outbox.Message{ID: taken, Topic: topic, UUID: "1"})
			f.NoError(err)
			f.NoError(p.Publish(topic, msg(ctx, "2")))
			_, err = f.Outbox.Outbox.Enqueue(ctx, tx, outbox.Message{ID: taken, Topic: topic, UUID: "again"})
			f.ErrorIs(err, outbox.ErrDuplicateID)
			return nil
		}))
		f.Equal(numbers(0, 3), f.uuids())
	})
}

// Publish has said nil: a flush that fails in the middle leaves its messages to the next one.
func TestScopedAFlushThatFailsLosesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		refused := false
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if inserts(s) && !refused {
				refused = true
				return errBoom
			}
			return nil
		}})
		p := f.publisher(pool, scoped)
		f.NoError(outbox.InTx(t.Context(), pool, func(ctx context.Context, _ *sql.Tx) error {
			f.NoError(p.Publish(topic, msg(ctx, "0")))
			f.ErrorIs(p.Flush(ctx), errBoom)
			return p.Publish(topic, msg(ctx, "1"))
		}))
		f.Equal(numbers(0, 2), f.uuids())

		refused = false
		f.ErrorIs(outbox.InTx(t.Context(), pool, func(ctx context.Context, _ *sql.Tx) error {
			return p.Publish(topic, msg(ctx, "2"))
		}), errBoom, "InTx returns what the database says")
		f.Equal(numbers(0, 2), f.uuids())
	})
}

// Each caller of Flush finds its own rows written, even those that another call is writing.
func TestScopedTwoFlushesAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		const callers, each = 8, 20
		f.NoError(f.inTx(func(ctx context.Context, tx *sql.Tx) error {
			missing := make(chan string, callers*each)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range each {
						id, err := f.NewID()
						f.NoError(err)
						f.NoError(p.Publish(topic, msg(ctx, id.String())))
						f.NoError(p.Flush(ctx))
						result, err := tx.ExecContext(ctx, f.SQL("UPDATE {outbox} SET {uuid} = {uuid} WHERE {uuid} = '%s'", id))
						f.NoError(err)
						if n, err := result.RowsAffected(); err != nil || n != 1 {
							missing <- id.String()
						}
					}
				})
			}
			all.Wait()
			f.Empty(missing)
			return nil
		}))
		f.Len(f.uuids(), callers*each)
	})
}

func TestScopedKeepsWhatTheCallerChangesAfterwards(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped)
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
			m := msg(ctx, "1")
			m.Metadata.Set("k", "before")
			f.NoError(p.Publish(topic, m))
			copy(m.Payload, "changed")
			m.Metadata.Set("k", "after")
			return nil
		}))
		claimed, err := f.Claim(t.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topic}}})
		f.NoError(err)
		f.Equal("payload 1", string(claimed[0].Payload))
		f.Equal("before", claimed[0].Headers["k"])
	})
}

// A delay runs from the call, not from the flush.
func TestScopedDelaysRunFromThePublish(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, scoped, byUUID)
		id, err := f.NewID()
		f.NoError(err)
		var published, flushed time.Time
		f.NoError(f.inTx(func(ctx context.Context, _ *sql.Tx) error {
			m := msg(ctx, id.String())
			delay.Message(m, delay.For(time.Hour))
			published = time.Now()
			f.NoError(p.Publish(topic, m))
			for time.Since(published) < 50*time.Millisecond { // what the transaction does meanwhile
				f.NoError(f.DB.PingContext(ctx))
			}
			flushed = time.Now()
			return nil
		}))
		records, err := f.Get(t.Context(), id)
		f.NoError(err)
		f.Len(records, 1)
		f.Less(records[0].NextAttemptAt.Sub(records[0].CreatedAt), time.Hour-flushed.Sub(published)+10*time.Millisecond)
		f.Greater(records[0].NextAttemptAt.Sub(records[0].CreatedAt), time.Hour-time.Minute)
	})
}
