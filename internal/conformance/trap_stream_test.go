package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// The defects of other ordered queues.

// A message in its last attempt holds its stream as in any other.
func TestTrap_StreamIsHeldInTheLastAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.ordered("orders", 1, 2)
		for attempt := range 10 {
			held := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Run: 1})
			f.Equal([]string{"0"}, uuids(held))
			f.Equal(attempt, held[0].RetryCount)
			f.Empty(f.claim("orders"))
			if attempt < 9 {
				f.settle(retried(held[0]))
			} else {
				f.settle(settled(outbox.Ack, held...)...)
			}
		}
		f.Equal([]string{"1"}, uuids(f.claim("orders")))
	})
}

// Messages that another transaction has locked are not passed over in their stream.
func TestTrap_StreamWithALockedHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(skipLocked)
		ids := f.ordered("orders", 2, 2)
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		f.execOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", f.row(ids[0]).seq)
		f.Equal([]outbox.MessageID{ids[1], ids[3]}, messageIDs(f.claim("orders")), "the other stream goes on")
		f.NoError(tx.Rollback())
		var held []outbox.Claimed
		f.Eventually(func() bool { held = f.claim("orders"); return len(held) > 0 }, patience, tick)
		f.Equal([]outbox.MessageID{ids[0], ids[2]}, messageIDs(held))
	})
}

// Messages without a key are no stream: one that fails holds up nobody, and neither do streams.
func TestTrap_KeylessMessagesAreNoStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 4)
		first := f.claimUpTo(1, "orders")
		f.settle(settled(outbox.Fail, first...)...)
		f.Len(f.claimUpTo(2, "orders"), 2)

		f.ordered("orders", 50, 1)
		kinds := map[bool]bool{}
		f.Eventually(func() bool { // one kind now, the other then
			for _, c := range f.claimUpTo(1, "orders") {
				kinds[c.StreamKey == ""] = true
			}
			return len(kinds) == 2
		}, patience, tick, "messages without a key starve beside streams, or the other way round")
	})
}

// A stream that nobody has is taken by one of many claims at once.
func TestTrap_StreamIsTakenByOneOfManyClaims(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const claimers = 64
		for round := range 5 {
			ids := f.ordered("orders", 1, 3)
			claims := make([][]outbox.Claimed, claimers)
			start := make(chan struct{})
			var done sync.WaitGroup
			for i := range claims {
				done.Go(func() {
					<-start
					var err error
					claims[i], err = f.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders"), Run: 1 + i%3, Lease: time.Hour})
					f.NoError(err)
				})
			}
			close(start)
			done.Wait()
			got := slices.DeleteFunc(claims, func(c []outbox.Claimed) bool { return len(c) == 0 })
			if len(got) == 0 { // all of them met one that was routing
				got = append(got, f.claim("orders"))
			}
			f.Len(got, 1, "claims that have a message of the stream, round %d", round)
			f.Equal(ids[:len(got[0])], messageIDs(got[0]))
			for len(got[0]) > 0 {
				f.settle(settled(outbox.Ack, got[0]...)...)
				got[0] = f.claim("orders")
			}
		}
	})
}

// What one transaction has published comes in the order in which it was.
func TestTrap_StreamOfOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var ids []outbox.MessageID
		f.NoError(seam.Outbox(f.outbox).InTx(f.ctx(), f.db.DB, func(ctx context.Context, x outbox.Executor) error {
			for i := range 10 {
				added, err := f.outbox.Enqueue(ctx, x, orderedMessages("orders", 1, 100*i, 100*(i+1))...)
				if ids = append(ids, added...); err != nil {
					return err
				}
			}
			return nil
		}))
		var got []outbox.MessageID
		for len(got) < len(ids) {
			held := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Run: 77})
			f.NotEmpty(held)
			got = append(got, messageIDs(held)...)
			f.settle(settled(outbox.Ack, held...)...)
		}
		f.Equal(ids, got)
	})
}

// Publishers of a stream do not wait for each other. What is committed late has a lower number than what is out: it waits,
// never runs beside that, and comes before what is behind that.
func TestTrap_StreamThatIsCommittedOutOfOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters)
		late, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }()
		_, err = f.outbox.Enqueue(f.ctx(), late, outbox.Message{Topic: "orders", StreamKey: "s", UUID: "50"})
		f.NoError(err)
		f.enqueue(outbox.Message{Topic: "orders", StreamKey: "s", UUID: "51"}, outbox.Message{Topic: "orders", StreamKey: "s", UUID: "52"})
		held := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Run: 1})
		f.Equal([]string{"51"}, uuids(held))
		f.NoError(late.Commit())
		f.Empty(f.claim("orders"), "51 is out")
		f.settle(settled(outbox.Ack, held...)...)
		f.Equal([]string{"50", "52"}, uuids(f.claim("orders")))
	})
}

// One that blocks its stream does so, too, when one with a lower number is committed late.
func TestTrap_StreamThatIsBlockedStaysSo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters)
		late, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }()
		_, err = f.outbox.Enqueue(f.ctx(), late, outbox.Message{Topic: "orders", StreamKey: "s", UUID: "50"})
		f.NoError(err)
		f.enqueue(outbox.Message{Topic: "orders", StreamKey: "s", UUID: "51"})
		f.settle(settled(outbox.Fail, f.claim("orders")...)...)
		f.NoError(late.Commit())
		f.Empty(f.claim("orders"))
		n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{All: true})
		f.NoError(err)
		f.Equal(1, n)
		f.Equal([]string{"50", "51"}, uuids(f.claim("orders")))
	})
}

// What has failed and was skipped comes again in its order, before what is behind it.
func TestTrap_StreamIsRequeuedInOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		skipping := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.OnStreamFailure = outbox.DeadLetter })
		f.ordered("orders", 1, 6)
		held := f.claimUpTo(5, "orders")
		_, err := skipping.Settle(f.ctx(), f.db.DB, append(settled(outbox.Ack, held[0], held[4]), settled(outbox.Fail, held[3], held[1], held[2])...))
		f.NoError(err)
		n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{Topic: "orders"})
		f.NoError(err)
		f.Equal(3, n)
		f.Equal([]string{"1", "2", "3", "5"}, uuids(f.claim("orders")))
	})
}

// A token of an earlier claim changes neither message nor stream.
func TestTrap_StreamAndAStaleToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.ordered("orders", 1, 2)
		stale := f.claim("orders")
		f.expireLeases()
		held := f.claim("orders")
		f.Equal([]string{"0", "1"}, uuids(held))
		f.Len(f.settle(settled(outbox.Ack, stale...)...), 2)
		f.Empty(f.claim("orders"), "the stream is still held")
		f.Empty(f.settle(settled(outbox.Ack, held...)...))
	})
}

// A handler's open transaction that has settled its message holds its own stream, and nobody else.
func TestTrap_StreamAndAnOpenSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(skipLocked)
		f.ordered("orders", 2, 2)
		held := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 2})
		f.Equal([]string{"0", "0"}, uuids(held))
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		refused, err := f.outbox.Settle(f.ctx(), tx, settled(outbox.Ack, held[0]))
		f.NoError(err)
		f.Empty(refused)
		f.settle(settled(outbox.Ack, held[1])...)
		next := f.claim("orders")
		f.Equal([]string{"1"}, uuids(next))
		f.Equal(held[1].StreamKey, next[0].StreamKey)
		f.NoError(tx.Commit())
		f.Equal([]outbox.WorkItemID{held[0].Receipt.Seq}, f.settle(settled(outbox.Ack, held[0])...), "as a Subscriber does after the ack")
		last := f.claim("orders")
		f.Equal([]string{"1"}, uuids(last))
		f.Equal(held[0].StreamKey, last[0].StreamKey)
	})
}

// The same where the process has died after its transaction: the run ends with the lease at the latest.
func TestTrap_StreamWhoseWorkerDiesAfterSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.ordered("orders", 1, 2)
		held := f.claimUpTo(1, "orders")
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.outbox.Settle(ctx, tx, settled(outbox.Ack, held...))
			return err
		}))
		f.exec("UPDATE {outbox_lease} SET {locked_until} = {past}")
		_, err := f.outbox.ReapExpired(f.ctx())
		f.NoError(err)
		f.Equal([]string{"1"}, uuids(f.claim("orders")))
	})
}

// A delayed head holds its stream, and no other.
func TestTrap_StreamWithADelayedHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueue(outbox.Message{Topic: "orders", StreamKey: "a", UUID: "later", Delay: time.Hour},
			outbox.Message{Topic: "orders", StreamKey: "a", UUID: "behind"}, outbox.Message{Topic: "orders", StreamKey: "b", UUID: "now"})
		f.Equal([]string{"now"}, uuids(f.claim("orders")))
		f.Empty(f.claim("orders"))
		f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {status} = 5")
		f.exec("UPDATE {outbox_stream} SET {next_attempt_at} = {past}")
		f.Equal([]string{"later", "behind"}, uuids(f.claim("orders")))
	})
}

// Streams are served in turn: one with a backlog does not starve those that come later.
func TestTrap_AHotStreamStarvesNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		hot := make([]outbox.Message, 500)
		for i := range hot {
			hot[i] = outbox.Message{Topic: "orders", StreamKey: "hot", UUID: fmt.Sprint(i)}
		}
		f.enqueue(hot...)
		f.Len(f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 4}), 4)
		f.ordered("orders", 3, 10)
		served := map[string]int{}
		for range 4 {
			for _, c := range f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 8}) {
				served[c.StreamKey]++
			}
		}
		f.Len(served, 3)
	})
}

// A head that somebody has deleted, or put off by hand, does not stop its stream for ever.
func TestTrap_StreamWhoseHeadIsGone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.ordered("orders", 3, 3)
		f.settle(settled(outbox.Release, f.claim("orders")...)...) // all are in their queues
		f.remove("{message_id} = '%s'", ids[0])
		f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {future} WHERE {seq} = %d", f.row(ids[1]).seq)
		var held []outbox.Claimed
		f.Eventually(func() bool { held = append(held, f.claim("orders")...); return len(held) == 5 }, patience, tick)
		f.ElementsMatch([]outbox.MessageID{ids[2], ids[3], ids[5], ids[6], ids[8]}, messageIDs(held))
		f.Empty(f.claim("orders"))
		f.settle(settled(outbox.Ack, held...)...)
	})
}

// Neither does one that somebody has deleted stop claims when more arrives in its stream.
func TestTrap_StreamWhoseHeadIsGoneWhenMoreArrives(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.ordered("orders", 1, 2)
		f.settle(settled(outbox.Release, f.claim("orders")...)...) // both are in the queue
		f.remove("{message_id} = '%s'", ids[0])
		ids = append(ids, f.enqueue(outbox.Message{Topic: "orders", StreamKey: streamKey(0), UUID: "more"})...)
		var held []outbox.Claimed
		f.Eventually(func() bool { held = append(held, f.claim("orders")...); return len(held) == 2 }, patience, tick)
		f.Equal(ids[1:], messageIDs(held))
	})
}
