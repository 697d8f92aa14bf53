package streams_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// The defects of other ordered queues.

// A message in its last attempt holds its stream as in any other.
func TestTrap_StreamIsHeldInTheLastAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Ordered("orders", 1, 2)
		for attempt := range 10 {
			held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Run: 1})
			f.Equal([]string{"0"}, suite.UUIDs(held))
			f.Equal(attempt, held[0].RetryCount)
			f.Empty(f.Claim("orders"))
			if attempt < 9 {
				f.Settle(suite.Retried(held[0]))
			} else {
				f.Settle(suite.Settled(outbox.Ack, held...)...)
			}
		}
		f.Equal([]string{"1"}, suite.UUIDs(f.Claim("orders")))
	})
}

// Messages that another transaction has locked are not passed over in their stream.
func TestTrap_StreamWithALockedHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		ids := f.Ordered("orders", 2, 2)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", f.Row(ids[0]).Seq)
		f.Equal([]outbox.MessageID{ids[1], ids[3]}, suite.MessageIDs(f.Claim("orders")), "the other stream goes on")
		f.NoError(tx.Rollback())
		var held []outbox.Claimed
		f.Eventually(func() bool { held = f.Claim("orders"); return len(held) > 0 }, suite.Patience, suite.Tick)
		f.Equal([]outbox.MessageID{ids[0], ids[2]}, suite.MessageIDs(held))
	})
}

// A handler's own transaction does not end a message before its predecessor, which was only acked and whose row is locked.
func TestTrap_SettlingInATransactionDoesNotOvertake(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		ids := f.Ordered("orders", 1, 2)
		queue := f.Subscribe(f.Subscriber(), "orders")
		first := f.Receive(queue)
		lock, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = lock.Rollback() }()
		f.ExecOn(lock, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", f.Row(ids[0]).Seq)
		first.Ack()

		second := f.Receive(queue)
		delivery := f.Delivery(second)
		ended := make(chan error, 1)
		go func() {
			ended <- outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				return delivery.SettleTx(ctx, tx, outbox.Ack)
			})
		}()
		select {
		case err := <-ended:
			f.NoError(err)
			f.Equal(int(outbox.Done), f.Row(ids[0]).Status, "the first message, when the second is done")
		case <-time.After(200 * time.Millisecond):
			f.NoError(lock.Rollback())
			f.NoError(<-ended)
		}
		f.Equal(int(outbox.Done), f.Row(ids[0]).Status)
		f.Equal(int(outbox.Done), f.Row(ids[1]).Status)
		second.Ack()
	})
}

// Messages without a key are no stream: one that fails holds up nobody, and neither do streams.
func TestTrap_KeylessMessagesAreNoStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 4)
		first := f.ClaimUpTo(1, "orders")
		f.Settle(suite.Settled(outbox.Fail, first...)...)
		f.Len(f.ClaimUpTo(2, "orders"), 2)

		f.Ordered("orders", 50, 1)
		kinds := map[bool]bool{}
		f.Eventually(func() bool { // one kind now, the other then
			for _, c := range f.ClaimUpTo(1, "orders") {
				kinds[c.StreamKey == ""] = true
			}
			return len(kinds) == 2
		}, suite.Patience, suite.Tick, "messages without a key starve beside streams, or the other way round")
	})
}

// A stream that nobody has is taken by one of many claims at once.
func TestTrap_StreamIsTakenByOneOfManyClaims(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const claimers = 64
		for round := range 5 {
			ids := f.Ordered("orders", 1, 3)
			claims := make([][]outbox.Claimed, claimers)
			start := make(chan struct{})
			var done sync.WaitGroup
			for i := range claims {
				done.Go(func() {
					<-start
					var err error
					claims[i], err = f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Run: 1 + i%3, Lease: time.Hour})
					f.NoError(err)
				})
			}
			close(start)
			done.Wait()
			got := slices.DeleteFunc(claims, func(c []outbox.Claimed) bool { return len(c) == 0 })
			if len(got) == 0 { // all of them met one that was routing
				got = append(got, f.Claim("orders"))
			}
			f.Len(got, 1, "claims that have a message of the stream, round %d", round)
			f.Equal(ids[:len(got[0])], suite.MessageIDs(got[0]))
			for len(got[0]) > 0 {
				f.Settle(suite.Settled(outbox.Ack, got[0]...)...)
				got[0] = f.Claim("orders")
			}
		}
	})
}

// What one transaction has published comes in the order in which it was.
func TestTrap_StreamOfOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var ids []outbox.MessageID
		f.NoError(seam.Outbox(f.Outbox).InTx(f.Context(), f.DB.DB, func(ctx context.Context, x outbox.Executor) error {
			for i := range 10 {
				added, err := f.Outbox.Enqueue(ctx, x, suite.OrderedMessages("orders", 1, 100*i, 100*(i+1))...)
				if ids = append(ids, added...); err != nil {
					return err
				}
			}
			return nil
		}))
		var got []outbox.MessageID
		for len(got) < len(ids) {
			held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Run: 77})
			f.NotEmpty(held)
			got = append(got, suite.MessageIDs(held)...)
			f.Settle(suite.Settled(outbox.Ack, held...)...)
		}
		f.Equal(ids, got)
	})
}

// Publishers of a stream do not wait for each other. What is committed late has a lower number than what is out: it waits,
// never runs beside that, and comes before what is behind that.
func TestTrap_StreamThatIsCommittedOutOfOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		late, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }()
		_, err = f.Outbox.Enqueue(f.Context(), late, outbox.Message{Topic: "orders", StreamKey: "s", UUID: "50"})
		f.NoError(err)
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "s", UUID: "51"}, outbox.Message{Topic: "orders", StreamKey: "s", UUID: "52"})
		held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Run: 1})
		f.Equal([]string{"51"}, suite.UUIDs(held))
		f.NoError(late.Commit())
		f.Empty(f.Claim("orders"), "51 is out")
		f.Settle(suite.Settled(outbox.Ack, held...)...)
		f.Equal([]string{"50", "52"}, suite.UUIDs(f.Claim("orders")))
	})
}

// What is committed after thousands of others of other streams is neither lost nor passed over by what comes after its commit.
func TestTrap_StreamThatIsCommittedAfterThousands(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		late, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }()
		_, err = f.Outbox.Enqueue(f.Context(), late, outbox.Message{Topic: "orders", StreamKey: "s", UUID: "first"})
		f.NoError(err)
		f.handleThousands()
		f.handleThousands()
		f.NoError(late.Commit())
		f.handleThousands()
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "s", UUID: "second"})
		f.handleThousands()
		f.Equal([]string{"first", "second"}, suite.UUIDs(f.Claim("orders")))
	})
}

// Nor is what arrives for a stream that somebody has locked while thousands of others come and go.
func TestTrap_StreamThatIsLockedWhileThousandsArrive(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked)
		f.Ordered("orders", 1, 1)
		held := f.Claim("orders")
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(f.Context(), f.SQL("UPDATE {outbox_stream} SET {status} = {status}"))
		f.NoError(err)
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: suite.StreamKey(0), UUID: "1"})
		for range 3 {
			f.handleThousands()
		}
		f.NoError(tx.Rollback())
		f.Empty(f.Settle(suite.Settled(outbox.Ack, held...)...))
		f.Equal([]string{"1"}, suite.UUIDs(f.Claim("orders")))
	})
}

// handleThousands publishes messages of many other streams, and handles them.
func (f *fixture) handleThousands() {
	f.T.Helper()
	const n = 1000
	f.Ordered("others", n, 1)
	f.Ordered("others", n, 1)
	for left := 2 * n; left > 0; {
		held := f.ClaimUpTo(n, "others")
		f.NotEmpty(held)
		f.Settle(suite.Settled(outbox.Ack, held...)...)
		left -= len(held)
	}
}

// One that blocks its stream does so, too, when one with a lower number is committed late.
func TestTrap_StreamThatIsBlockedStaysSo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		late, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }()
		_, err = f.Outbox.Enqueue(f.Context(), late, outbox.Message{Topic: "orders", StreamKey: "s", UUID: "50"})
		f.NoError(err)
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "s", UUID: "51"})
		f.Settle(suite.Settled(outbox.Fail, f.Claim("orders")...)...)
		f.NoError(late.Commit())
		f.Empty(f.Claim("orders"))
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{All: true})
		f.NoError(err)
		f.Equal(1, n)
		f.Equal([]string{"50", "51"}, suite.UUIDs(f.Claim("orders")))
	})
}

// What has failed and was skipped comes again in its order, before what is behind it.
func TestTrap_StreamIsRequeuedInOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		skipping := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.OnStreamFailure = outbox.DeadLetter })
		f.Ordered("orders", 1, 6)
		held := f.ClaimUpTo(5, "orders")
		_, err := skipping.Settle(f.Context(), f.DB.DB, append(suite.Settled(outbox.Ack, held[0], held[4]), suite.Settled(outbox.Fail, held[3], held[1], held[2])...))
		f.NoError(err)
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{Topic: "orders"})
		f.NoError(err)
		f.Equal(3, n)
		f.Equal([]string{"1", "2", "3", "5"}, suite.UUIDs(f.Claim("orders")))
	})
}

// A token of an earlier claim changes neither message nor stream.
func TestTrap_StreamAndAStaleToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Ordered("orders", 1, 2)
		stale := f.Claim("orders")
		f.ExpireLeases()
		held := f.Claim("orders")
		f.Equal([]string{"0", "1"}, suite.UUIDs(held))
		f.Len(f.Settle(suite.Settled(outbox.Ack, stale...)...), 2)
		f.Empty(f.Claim("orders"), "the stream is still held")
		f.Empty(f.Settle(suite.Settled(outbox.Ack, held...)...))
	})
}

// A handler's open transaction that has settled its message holds its own stream, and nobody else.
func TestTrap_StreamAndAnOpenSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		f.Ordered("orders", 2, 2)
		held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 2})
		f.Equal([]string{"0", "0"}, suite.UUIDs(held))
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		refused, err := f.Outbox.Settle(f.Context(), tx, suite.Settled(outbox.Ack, held[0]))
		f.NoError(err)
		f.Empty(refused)
		f.Settle(suite.Settled(outbox.Ack, held[1])...)
		next := f.Claim("orders")
		f.Equal([]string{"1"}, suite.UUIDs(next))
		f.Equal(held[1].StreamKey, next[0].StreamKey)
		f.NoError(tx.Commit())
		f.Equal([]outbox.WorkItemID{held[0].Receipt.Seq}, f.Settle(suite.Settled(outbox.Ack, held[0])...), "as a Subscriber does after the ack")
		last := f.Claim("orders")
		f.Equal([]string{"1"}, suite.UUIDs(last))
		f.Equal(held[0].StreamKey, last[0].StreamKey)
	})
}

// The same where the process has died after its transaction: the run ends with the lease at the latest.
func TestTrap_StreamWhoseWorkerDiesAfterSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Ordered("orders", 1, 2)
		held := f.ClaimUpTo(1, "orders")
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.Outbox.Settle(ctx, tx, suite.Settled(outbox.Ack, held...))
			return err
		}))
		f.Exec("UPDATE {outbox_lease} SET {locked_until} = {past}")
		_, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Equal([]string{"1"}, suite.UUIDs(f.Claim("orders")))
	})
}

// A delayed head holds its stream, and no other.
func TestTrap_StreamWithADelayedHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "a", UUID: "later", Delay: time.Hour},
			outbox.Message{Topic: "orders", StreamKey: "a", UUID: "behind"}, outbox.Message{Topic: "orders", StreamKey: "b", UUID: "now"})
		f.Equal([]string{"now"}, suite.UUIDs(f.Claim("orders")))
		f.Empty(f.Claim("orders"))
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {status} = 5")
		f.Exec("UPDATE {outbox_stream} SET {next_attempt_at} = {past}")
		f.Equal([]string{"later", "behind"}, suite.UUIDs(f.Claim("orders")))
	})
}

// Streams are served in turn: one with a backlog does not starve those that come later.
func TestTrap_AHotStreamStarvesNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		hot := make([]outbox.Message, 500)
		for i := range hot {
			hot[i] = outbox.Message{Topic: "orders", StreamKey: "hot", UUID: fmt.Sprint(i)}
		}
		f.Enqueue(hot...)
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 4}), 4)
		f.Ordered("orders", 3, 10)
		served := map[string]int{}
		for range 4 {
			for _, c := range f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 8}) {
				served[c.StreamKey]++
			}
		}
		f.Len(served, 3)
	})
}

// A head that somebody has deleted, or put off by hand, does not stop its stream for ever.
func TestTrap_StreamWhoseHeadIsGone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Ordered("orders", 3, 3)
		f.Settle(suite.Settled(outbox.Release, f.Claim("orders")...)...) // all are in their queues
		f.Remove("{message_id} = '%s'", ids[0])
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {future} WHERE {seq} = %d", f.Row(ids[1]).Seq)
		var held []outbox.Claimed
		f.Eventually(func() bool { held = append(held, f.Claim("orders")...); return len(held) == 5 }, suite.Patience, suite.Tick)
		f.ElementsMatch([]outbox.MessageID{ids[2], ids[3], ids[5], ids[6], ids[8]}, suite.MessageIDs(held))
		f.Empty(f.Claim("orders"))
		f.Settle(suite.Settled(outbox.Ack, held...)...)
	})
}

// Neither does one that somebody has deleted stop claims when more arrives in its stream.
func TestTrap_StreamWhoseHeadIsGoneWhenMoreArrives(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Ordered("orders", 1, 2)
		f.Settle(suite.Settled(outbox.Release, f.Claim("orders")...)...) // both are in the queue
		f.Remove("{message_id} = '%s'", ids[0])
		ids = append(ids, f.Enqueue(outbox.Message{Topic: "orders", StreamKey: suite.StreamKey(0), UUID: "more"})...)
		var held []outbox.Claimed
		f.Eventually(func() bool { held = append(held, f.Claim("orders")...); return len(held) == 2 }, suite.Patience, suite.Tick)
		f.Equal(ids[1:], suite.MessageIDs(held))
	})
}
