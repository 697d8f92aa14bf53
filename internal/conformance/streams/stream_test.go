package streams_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// One claim has a stream: what is behind comes when all of it is settled, whoever asks.
func TestStream_IsClaimedByOne(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Ordered("orders", 1, 40)
		first := f.ClaimUpTo(100, "orders")
		f.Equal(ids[:32], suite.MessageIDs(first), "a run")
		f.Empty(f.ClaimUpTo(100, "orders"), "the stream is held")
		f.Settle(suite.Settled(outbox.Ack, first[:31]...)...)
		f.Empty(f.ClaimUpTo(100, "orders"), "one of the run is out")
		f.Settle(suite.Settled(outbox.Ack, first[31])...)
		f.Equal(ids[32:], suite.MessageIDs(f.ClaimUpTo(100, "orders")))
	})
}

// What failed and what came behind it goes back together; only the head has spent an attempt, and it comes first again.
func TestStream_GoesBackBehindItsHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Ordered("orders", 1, 3)
		held := f.ClaimUpTo(10, "orders")
		f.Settle(append([]outbox.Settlement{{Receipt: held[0].Receipt, Outcome: outbox.Retry, Delay: -1}}, suite.Settled(outbox.Release, held[1:]...)...)...)
		again := f.ClaimUpTo(10, "orders")
		f.Equal(ids, suite.MessageIDs(again))
		f.Equal([]int{1, 0, 0}, []int{again[0].RetryCount, again[1].RetryCount, again[2].RetryCount})
	})
}

// A head that has failed for good blocks its stream, and no other, until it is requeued.
func TestStream_ABlockedOneHoldsUpNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Ordered("orders", 2, 2)
		held := f.ClaimUpTo(10, "orders")
		f.Len(held, 4)
		for _, c := range held {
			outcome := outbox.Ack
			if c.StreamKey == "stream 0" {
				if outcome = outbox.Release; c.UUID == "0" {
					outcome = outbox.Fail
				}
			}
			f.Settle(suite.Settled(outcome, c)...)
		}
		f.Empty(f.ClaimUpTo(10, "orders"))
		f.Ordered("orders", 2, 1)
		next := f.ClaimUpTo(10, "orders")
		f.Len(next, 1)
		f.Equal("stream 1", next[0].StreamKey)
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{All: true})
		f.NoError(err)
		f.Equal(1, n)
		back := f.ClaimUpTo(10, "orders")
		f.Equal([]string{"0", "1", "0"}, []string{back[0].UUID, back[1].UUID, back[2].UUID})
	})
}

// The messages of a stream whose worker has died come again, in order, and the first of them has spent an attempt.
func TestStream_AnExpiredRunComesAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Ordered("orders", 1, 3)
		held := f.ClaimUpTo(10, "orders")
		f.Settle(suite.Settled(outbox.Ack, held[0])...)
		f.ExpireLeases()
		again := f.ClaimUpTo(10, "orders")
		f.Equal(ids[1:], suite.MessageIDs(again))
		f.Equal([]int{1, 0}, []int{again[0].RetryCount, again[1].RetryCount})
		f.Len(f.Settle(suite.Settled(outbox.Ack, held[1:]...)...), 2, "a stale token changes nothing")
	})
}
