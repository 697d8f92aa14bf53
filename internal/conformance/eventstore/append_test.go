package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

func fullSize(variable string) bool { return os.Getenv(variable) == "full" }

func TestAppendGivesVersionsAndChecksThem(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Equal(eventstore.Appended{First: 1, Last: 2}, f.append("order-1", eventstore.NoStream, events(1, 2)...))
		f.Equal(eventstore.Appended{First: 3, Last: 3}, f.append("order-1", eventstore.Exactly(2), events(3, 1)...))
		f.Equal(eventstore.Appended{First: 4, Last: 4}, f.append("order-1", eventstore.StreamExists, events(4, 1)...))
		f.Equal(eventstore.Appended{First: 5, Last: 5}, f.append("order-1", eventstore.Any, events(5, 1)...))
		f.Equal(eventstore.Appended{First: 1, Last: 1}, f.append("order-2", eventstore.Any, events(9, 1)...))
		f.Equal(eventstore.Appended{First: 1, Last: 1}, f.append("order-3", eventstore.Exactly(0), events(9, 1)...))
		f.Equal(eventstore.Appended{First: 1, Last: 1}, f.append("Order-1", eventstore.NoStream, events(9, 1)...), "names differ in case")

		for expected, stream := range map[eventstore.Expected]string{
			eventstore.Exactly(4): "order-1", eventstore.Exactly(6): "order-1", eventstore.NoStream: "order-1", eventstore.StreamExists: "order-4", eventstore.Exactly(1): "order-4",
		} {
			_, err := f.store.Append(f.ctx(), nil, stream, expected, events(7, 1)...)
			var conflict *eventstore.VersionError
			f.ErrorAs(err, &conflict)
			f.ErrorIs(err, eventstore.ErrVersionConflict)
			want := &eventstore.VersionError{Stream: stream, Expected: expected, Actual: 5}
			if stream == "order-4" {
				want.Actual = 0
			}
			f.Equal(want, conflict)
		}
		f.Equal(numbers(1, 5), f.read("order-1", eventstore.ReadParams{}))
		f.Equal(3, f.rows("event_stream")-1, "a refused append leaves no stream")
	})
}

// A forgotten check must not mean that anything goes, and nothing is half written.
func TestBadInputIsRefusedByNameAndWritesNothing(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		var unset eventstore.Expected
		bad := func(name string, stream string, expected eventstore.Expected, list ...eventstore.Event) {
			_, err := f.store.Append(f.ctx(), nil, stream, expected, list...)
			var field *outbox.FieldError
			f.ErrorAs(err, &field)
			f.Equal(name, field.Field)
		}
		bad("Expected", "s", unset, events(1, 1)...)
		bad("Expected", "s", eventstore.Exactly(-1), events(1, 1)...)
		bad("Expected", "s", eventstore.Exactly(-3), events(1, 1)...)
		bad("Stream", "", eventstore.Any, events(1, 1)...)
		bad("Stream", " s", eventstore.Any, events(1, 1)...)
		bad("Stream", strings.Repeat("s", 256), eventstore.Any, events(1, 1)...)
		bad("Events", "s", eventstore.Any)
		bad("Headers", "s", eventstore.Any, eventstore.Event{Metadata: map[string]string{"x": "\xff"}})
		bad("Topic", "s", eventstore.Any, append(events(1, 1), eventstore.Event{Topic: " x"})...)
		_, err := f.store.AppendAll(f.ctx(), nil, eventstore.StreamEvents{Stream: "a", Expected: eventstore.Any, Events: events(1, 1)},
			eventstore.StreamEvents{Stream: "a", Expected: eventstore.Any, Events: events(1, 1)})
		f.ErrorContains(err, "twice")
		_, err = f.store.AppendAll(f.ctx(), nil, eventstore.StreamEvents{Stream: "a", Expected: eventstore.Any, Events: events(1, 1)},
			eventstore.StreamEvents{Stream: "b", Expected: eventstore.StreamExists, Events: events(1, 1)})
		f.ErrorIs(err, eventstore.ErrVersionConflict)
		f.isNothing()
	})
}

// Each call without an executor refuses a transaction of another database: the events would be missing here.
func TestTrap_TheTransactionOfTheContextIsOfAnotherDatabase(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 1)...)
		f.NoError(outbox.InTx(f.ctx(), faults.Open(t, f.DB, faults.Hooks{}), func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.store.Append(ctx, nil, "s", eventstore.Any, events(2, 1)...)
			f.isField(err, "ctx")
			_, err = f.store.AppendAll(ctx, nil, eventstore.StreamEvents{Stream: "s", Expected: eventstore.Any, Events: events(2, 1)})
			f.isField(err, "ctx")
			f.isField(f.store.Archive(ctx, nil, "s", eventstore.Any), "ctx")
			for _, err := range f.store.Read(ctx, nil, "s", eventstore.ReadParams{}) {
				f.isField(err, "ctx")
			}
			_, err = f.store.Append(ctx, tx, "s", eventstore.Exactly(1), events(2, 1)...)
			return err
		}))
	})
}

// The first stream's events were written under a savepoint inside that of the whole call.
func TestTrap_AFailedAppendToManyLeavesNothingInTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.NoError(outbox.InTx(f.ctx(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.store.AppendAll(ctx, tx, eventstore.StreamEvents{Stream: "a", Expected: eventstore.NoStream, Events: events(1, 2)},
				eventstore.StreamEvents{Stream: "b", Expected: eventstore.StreamExists, Events: events(1, 1)})
			f.ErrorIs(err, eventstore.ErrVersionConflict)
			return nil // and commits
		}))
		f.isNothing()
	})
}

// hallgren/eventsourcing returns the driver's error when two race; a database error would end the loser's transaction.
func TestEachConflictIsToldToOneLoserWhoseTransactionIsUsable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		writers, rounds := 32, full("OUTBOX_TEST_EVENTS", 3, 40)
		if f.DB.Name == testdb.SQLServer {
			writers = 8
		}
		store := f.store
		var won, lost atomic.Int64
		var version atomic.Int64
		for range rounds {
			expected := eventstore.Exactly(version.Load())
			wins := int64(0)
			var mu sync.Mutex
			var all group
			for range writers {
				all.Go(func() error {
					return retried(func() error {
						tx, err := f.DB.BeginTx(t.Context(), nil)
						if err != nil {
							return err
						}
						defer func() { _ = tx.Rollback() }()
						done, err := store.Append(t.Context(), tx, "one", expected, events(0, 2)...)
						if err != nil && !isConflict(err) {
							return err
						}
						conflict := err
						if _, err := f.Outbox.Outbox.Enqueue(t.Context(), tx, outbox.Message{Topic: "tried"}); err != nil {
							return err
						}
						if err := tx.Commit(); err != nil {
							return err
						}
						mu.Lock()
						defer mu.Unlock()
						if conflict != nil {
							lost.Add(1)
							return nil
						}
						wins++
						won.Add(1)
						version.Store(done.Last)
						return nil
					})
				})
			}
			f.NoError(all.Wait())
			f.Equal(int64(1), wins, "one writer wins a round")
		}
		f.Equal(int64(rounds), won.Load())
		f.Equal(int64(rounds*(writers-1)), lost.Load())
		f.Equal(writers*rounds, f.Count(outbox.Ready), "each transaction was committed, with its message")
		f.isGapless("one", 2*rounds)
	})
}

// retried runs a caller's transaction again, as callers do.
func retried(f func() error) error {
	for try := 0; ; try++ {
		if err := f(); err == nil || !outbox.IsRetryable(err) || try == 100 {
			return err
		}
	}
}

func TestAnyUnderContentionAllSucceedInContiguousRuns(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		streams, each := full("OUTBOX_TEST_EVENTS", 10, 1000), 4
		if f.DB.Name == testdb.SQLServer {
			streams = 3
		}
		var all group
		for w := range 8 {
			all.Go(func() error {
				for i := range streams * each {
					name := "stream " + numbers(i*(w+1)%streams, 1)[0]
					done, err := f.store.Append(t.Context(), nil, name, eventstore.Any, events(0, 3)...)
					if err == nil && done.Last-done.First != 2 {
						err = errors.New("an append is not contiguous")
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		f.NoError(all.Wait())
		f.Equal(8*streams*each*3, f.rows("event"))
		f.Zero(f.Number("SELECT COUNT(*) FROM %s AS s WHERE s.{version} <> (SELECT COUNT(*) FROM %s AS e WHERE e.%s = s.%s AND e.{version} <= s.{version})",
			f.part("event_stream"), f.part("event"), testdb.Column(f.DB.Name, "stream_no"), testdb.Column(f.DB.Name, "stream_no")), "a stream has a gap")
	})
}

// A retry after a lost reply must not conflict with itself; message-db refuses it by the id.
func TestTheSameAppendAgainIsDoneOnce(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 2)...)
		list := f.named(3, 3)
		f.Equal(eventstore.Appended{First: 3, Last: 5}, f.append("s", eventstore.Exactly(2), list...))
		f.append("s", eventstore.Any, events(6, 1)...)
		f.Equal(eventstore.Appended{First: 3, Last: 5, Repeated: true}, f.append("s", eventstore.Exactly(2), list...))

		tx := f.begin()
		done, err := f.store.Append(f.ctx(), tx, "s", eventstore.Exactly(2), list...)
		f.NoError(err)
		f.True(done.Repeated)
		f.usable(tx)

		other := append([]eventstore.Event(nil), list...)
		other[1].Payload = []byte("other")
		kind := append([]eventstore.Event(nil), list...)
		kind[2].Type = "other"
		for what, events := range map[string][]eventstore.Event{
			"half of it": append(list[2:3:3], f.named(7, 1)...), "in another order": {list[1], list[0], list[2]}, "with another payload": other, "with another type": kind,
			"with a gap": {list[0], list[2]},
		} {
			for _, expected := range []eventstore.Expected{eventstore.Any, eventstore.Exactly(6), eventstore.Exactly(2)} {
				tx := f.begin()
				_, err := f.store.Append(f.ctx(), tx, "s", expected, events...)
				f.ErrorIs(err, eventstore.ErrDuplicate, what)
				f.usable(tx)
			}
		}
		tx = f.begin()
		_, err = f.store.Append(f.ctx(), tx, "another", eventstore.Any, list...)
		f.ErrorIs(err, eventstore.ErrDuplicate, "in another stream")
		f.usable(tx)
		f.Equal(numbers(1, 6), f.read("s", eventstore.ReadParams{}))
		f.Equal(6, f.rows("event"))
	})
}

func TestTheSameAppendTwiceAtOnceIsDoneOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for round := range 5 {
			stream := "s" + numbers(round, 1)[0]
			for _, expected := range []eventstore.Expected{eventstore.Any, eventstore.StreamExists} {
				if expected == eventstore.StreamExists {
					f.append(stream, eventstore.Any, events(0, 1)...)
				}
				list := f.named(1, 2)
				var repeated atomic.Int64
				var both group
				for range 4 {
					both.Go(func() error {
						done, err := f.store.Append(t.Context(), nil, stream, expected, list...)
						if done.Repeated {
							repeated.Add(1)
						}
						return err
					})
				}
				f.NoError(both.Wait())
				f.Equal(int64(3), repeated.Load())
			}
			f.isGapless(stream, 5)
		}
	})
}

// Two transactions that append to the same streams in opposite orders would wait for each other.
func TestTwoStreamsInOppositeOrdersDoNotDeadlock(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var all group
		for w := range 4 {
			all.Go(func() error {
				for range 10 {
					a := eventstore.StreamEvents{Stream: "a", Expected: eventstore.Any, Events: events(0, 1)}
					b := eventstore.StreamEvents{Stream: "b", Expected: eventstore.Any, Events: events(0, 2)}
					if w%2 == 1 {
						a, b = b, a
					}
					done, err := f.store.AppendAll(t.Context(), nil, a, b)
					if err != nil {
						return err
					}
					if done[0].Last-done[0].First != int64(len(a.Events)-1) {
						return errors.New("the answers are not in the order of the arguments")
					}
				}
				return nil
			})
		}
		f.NoError(all.Wait())
		f.isGapless("a", 40)
		f.isGapless("b", 80)
	})
}

// whizbang's acknowledgements are undone by a clash of versions in the same batch.
func TestAVersionConflictUndoesNoSettlement(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 1)...)
		f.Enqueue("commands", 1, 1)
		claimed, err := f.Claim(f.ctx(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "commands", Quota: 1}}, Lease: testoutbox.Patience})
		f.NoError(err)
		f.Len(claimed, 1)
		tx := f.begin()
		refused, err := f.Settle(f.ctx(), tx, []outbox.Settlement{{Receipt: claimed[0].Receipt, Outcome: outbox.Ack}})
		f.NoError(err)
		f.Empty(refused)
		_, err = f.store.Append(f.ctx(), tx, "s", eventstore.NoStream, events(2, 1)...)
		f.ErrorIs(err, eventstore.ErrVersionConflict)
		f.NoError(tx.Commit())
		f.Equal(1, f.Count(outbox.Done))
	})
}

// What is appended is committed and rolled back with the caller's rows and messages.
func TestAppendTakesPartInTheCallersTransaction(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		away := errors.New("away")
		for _, fails := range []error{away, nil} {
			err := outbox.InTx(f.ctx(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
				if _, err := f.store.Append(ctx, nil, "s", eventstore.NoStream, events(1, 2)...); err != nil {
					return err
				}
				list, err := payloads(f.store.Read(ctx, nil, "s", eventstore.ReadParams{}))
				f.NoError(err)
				f.Equal(numbers(1, 2), list, "the transaction sees its own")
				return fails
			})
			f.Equal(fails, err)
			if fails != nil {
				f.isNothing()
			}
		}
		conn, err := f.DB.Conn(f.ctx())
		f.NoError(err)
		_, err = f.store.Append(f.ctx(), conn, "s", eventstore.Exactly(2), events(3, 1)...)
		f.NoError(err)
		f.NoError(conn.Close())
		f.isGapless("s", 3)
	})
}

// More events than one statement takes are one append: one transaction, contiguous, and done once.
func TestLong_TenThousandEventsInOneAppend(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		n := 10_000
		if f.DB.Name == testdb.SQLServer {
			n = 2500
		}
		f.append("s", eventstore.NoStream, events(0, 1)...)
		list := f.named(1, n)
		tx := f.begin()
		_, err := f.store.Append(f.ctx(), tx, "s", eventstore.NoStream, list...)
		f.ErrorIs(err, eventstore.ErrVersionConflict)
		done, err := f.store.Append(f.ctx(), tx, "s", eventstore.Exactly(1), list...)
		f.NoError(err)
		f.Equal(eventstore.Appended{First: 2, Last: int64(n) + 1}, done)
		f.NoError(tx.Commit())
		f.Equal(eventstore.Appended{First: 2, Last: int64(n) + 1, Repeated: true}, f.append("s", eventstore.Exactly(1), list...))
		f.Equal(numbers(0, n+1), f.read("s", eventstore.ReadParams{}))

		// The last batch is refused, and with it the others.
		_, err = f.store.Append(f.ctx(), nil, "s", eventstore.Any, append(f.named(0, 1000), list[0])...)
		f.ErrorIs(err, eventstore.ErrDuplicate)
		_, err = f.store.Append(f.ctx(), nil, "s", eventstore.Any, append(list[:1000:1000], f.named(0, 1)...)...)
		f.ErrorIs(err, eventstore.ErrDuplicate)
		f.Equal(n+1, f.rows("event"))
	})
}

// hallgren/eventsourcing counts in 32 bits.
func TestVersionsAndPositionsAbove32Bits(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		const large = int64(5_000_000_000)
		f.append("s", eventstore.NoStream, events(1, 1)...)
		f.stamp()
		f.Exec("UPDATE %s SET {version} = %d, {hidden} = 1", f.part("event_stream"), large)
		f.Exec("UPDATE %s SET {position} = %d", f.part("log_counter"), large)
		f.Equal(eventstore.Appended{First: large + 1, Last: large + 2}, f.append("s", eventstore.Exactly(large), events(2, 2)...))
		f.stamp()
		f.Equal(numbers(2, 2), f.read("s", eventstore.ReadParams{}))
		f.Equal(numbers(2, 2), f.readAll(eventstore.ReadAllParams{After: large}))
		f.Equal(numbers(3, 1), f.read("s", eventstore.ReadParams{From: large + 2}))
	})
}
