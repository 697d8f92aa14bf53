package log_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// consume reads a topic for a group until done says that it has all, and returns the UUIDs in the order of the log.
func (f *fixture) consume(group, topic string, done func(received int) bool) (uuids []string) {
	f.T.Helper()
	_, s := f.logPubSub(f.T, group)
	messages, err := s.Subscribe(context.WithoutCancel(f.Context()), topic)
	f.NoError(err)
	for !done(len(uuids)) {
		msg := f.Receive(messages)
		uuids = append(uuids, msg.UUID)
		msg.Ack()
	}
	f.NoError(s.Close())
	return uuids
}

// Many writers commit late, or not at all. Each group sees exactly what was committed, and each producer's messages in
// the order in which it committed them. A reader that goes by the number of the row, for control, misses some.
func TestTrap_LateCommitsAreNotLost(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		producers, each := 64, 20
		if f.Lacks(suite.ConcurrentWriters) != "" {
			producers, each = 8, 10
		}
		f.Sequencer()
		o := f.LogOutbox()
		pool := f.DB.Reopen(t)
		pool.SetMaxOpenConns(producers + 4)

		var mu sync.Mutex
		var committed []string
		stop := make(chan struct{})
		control := make(chan int)
		go func() { control <- f.readByNumber(stop) }()
		var writing sync.WaitGroup
		for p := range producers {
			writing.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(p)))
				for i := range each {
					uuid := fmt.Sprintf("%d-%d", p, i)
					tx, err := pool.BeginTx(context.Background(), nil)
					if err != nil {
						t.Errorf("begin: %v", err)
						return
					}
					if _, err := o.Enqueue(context.Background(), tx, outbox.Message{UUID: uuid, Topic: "log"}); err != nil {
						t.Errorf("enqueue: %v", err)
					}
					<-time.After(time.Duration(random.IntN(5)) * time.Millisecond) // the late commit is what this is about
					if random.IntN(5) == 0 {
						_ = tx.Rollback()
						continue
					}
					mu.Lock() // the list is in order of the commits of each producer
					if err := tx.Commit(); err != nil {
						t.Errorf("commit: %v", err)
					} else {
						committed = append(committed, uuid)
					}
					mu.Unlock()
				}
			})
		}
		var groups sync.WaitGroup
		finished := make(chan struct{})
		results := make([][]string, 3)
		for g := range results {
			groups.Go(func() {
				results[g] = f.consume(fmt.Sprintf("group %d", g), "log", func(received int) bool {
					select {
					case <-finished:
						mu.Lock()
						defer mu.Unlock()
						return received >= len(committed)
					default:
						return false
					}
				})
			})
		}
		writing.Wait()
		mu.Lock()
		committed = append(committed, "the last")
		mu.Unlock()
		close(finished)
		f.EnqueueLogged(o, "log", "the last") // a receive that waits then has something to receive
		groups.Wait()
		close(stop)
		t.Logf("%d committed; a reader by number saw %d of them", len(committed), <-control)
		for _, got := range results {
			f.ElementsMatch(committed, got)
			last := map[string]int{}
			for _, uuid := range got {
				producer, number, ok := strings.Cut(uuid, "-")
				if !ok {
					continue
				}
				n, err := strconv.Atoi(number)
				f.NoError(err)
				f.Greater(n+1, last[producer], "producer %s out of order", producer)
				last[producer] = n + 1
			}
		}
	})
}

// readByNumber is the control: it goes by seq, and so passes over what commits late.
func (f *fixture) readByNumber(stop <-chan struct{}) (seen int) {
	var last int64
	for {
		var n int
		var highest int64
		query := f.SQL("SELECT COUNT(*), COALESCE(MAX({seq}), %d) FROM {all} WHERE {seq} > %d", last, last)
		if err := f.DB.QueryRowContext(context.Background(), query).Scan(&n, &highest); err != nil {
			f.T.Errorf("reading by number: %v", err)
			return seen
		}
		seen, last = seen+n, highest
		select {
		case <-stop:
			return seen
		case <-time.After(time.Millisecond):
		}
	}
}

// The same, forced: what was inserted first commits last.
func TestTrap_ALateCommitForced(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		o := f.LogOutbox()
		s, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil)
		f.NoError(err)
		late, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }() // for a failure before the commit
		_, err = o.Enqueue(f.Context(), late, outbox.Message{UUID: "first", Topic: "log"})
		f.NoError(err)
		f.EnqueueLogged(o, "log", "second")
		n, err := seam.Sequencer(s).Stamp(f.Context())
		f.NoError(err)
		f.Equal(1, n)
		received := f.consume("group", "log", func(n int) bool { return n == 1 })
		f.Equal([]string{"second"}, received)

		var passed int64
		f.NoError(f.DB.QueryRowContext(f.Context(), f.SQL("SELECT MAX({seq}) FROM {all}")).Scan(&passed))
		f.NoError(late.Commit())
		n, err = seam.Sequencer(s).Stamp(f.Context())
		f.NoError(err)
		f.Equal(1, n)
		f.Equal([]string{"first"}, f.consume("group", "log", func(n int) bool { return n == 1 }))

		var missed int
		f.NoError(f.DB.QueryRowContext(f.Context(), f.SQL("SELECT COUNT(*) FROM {all} WHERE {seq} <= %d AND {uuid} = 'first'", passed)).Scan(&missed))
		f.Equal(1, missed, "whoever had read up to the second message by its number would not see the first")
	})
}

// A message for the log alone is no work for the queue; one for both is both. Purging the queue leaves the log alone, and
// purging the log overtakes no group.
func TestTheLogAndTheQueueShareATable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		both := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Log = outbox.QueueAndLog })
		f.Sequencer()
		f.EnqueueLogged(f.LogOutbox(), "t", "log")
		f.EnqueueLogged(both, "t", "both")
		f.EnqueueN("t", 1)
		claimed := f.Claim("t")
		f.Len(claimed, 2)
		f.Settle(suite.Settled(outbox.Ack, claimed...)...)

		_, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(2, f.Count(), "the queue's own message is gone")
		f.Equal([]string{"log", "both"}, f.consume("one", "t", func(n int) bool { return n == 2 }))

		_, other := f.logPubSub(t, "two")
		initializer, ok := other.(message.SubscribeInitializer)
		f.True(ok)
		f.NoError(initializer.SubscribeInitialize("t"))
		f.NoError(other.Close())
		n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(0, n, "the second group has read nothing yet")
		f.NoError(f.Outbox.ForgetGroup(f.Context(), "two"))
		n, err = f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(2, n)
		_, err = f.Outbox.Purge(f.Context(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(0, f.Count())
	})
}

// One consumer of a group is active. When it stops, the next goes on where it was.
func TestAGroupHasOneActiveConsumer(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		f.EnqueueLogged(f.LogOutbox(), "t", "1", "2", "3")
		_, first := f.logPubSub(t, "group")
		active, err := first.Subscribe(context.WithoutCancel(f.Context()), "t")
		f.NoError(err)
		msg := f.Receive(active)
		f.Equal("1", msg.UUID)
		_, second := f.logPubSub(t, "group")
		standby, err := second.Subscribe(context.WithoutCancel(f.Context()), "t")
		f.NoError(err)
		msg.Ack()
		msg = f.Receive(active)
		f.Equal("2", msg.UUID)
		select {
		case other := <-standby:
			f.Fail("two consumers are active", other.UUID)
		default:
		}
		msg.Ack()
		f.NoError(first.Close())
		var rest []string
		for !slices.Contains(rest, "3") {
			msg := f.Receive(standby)
			rest = append(rest, msg.UUID)
			msg.Ack()
		}
		f.Equal([]string{"3"}, rest, "what was acked is not delivered again after a close")
		f.NoError(second.Close())
	})
}

// A transaction that is rolled back leaves nothing in the log.
func TestTheLogIsPartOfTheTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		o := f.LogOutbox()
		f.Error(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := o.Enqueue(ctx, tx, outbox.Message{UUID: "x", Topic: "t"})
			f.NoError(err)
			return context.Canceled
		}))
		s, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil)
		f.NoError(err)
		n, err := seam.Sequencer(s).Stamp(f.Context())
		f.NoError(err)
		f.Equal(0, n)
	})
}
