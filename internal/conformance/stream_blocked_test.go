package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// blocked publishes messages of one stream and fails the first for good.
func (f *fixture) blocked(messages int) []outbox.MessageID {
	f.t.Helper()
	ids := f.ordered("orders", 1, messages)
	held := f.claimUpTo(1, "orders")
	f.Equal(ids[:1], messageIDs(held))
	f.NoError(f.outbox.Fail(f.ctx(), held[0].Receipt.Owner, errors.New("no such customer"), held[0].Receipt.Seq))
	f.Empty(f.claim("orders"))
	return ids
}

func TestStream_BlockedStreamsAreListed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		from := f.now()
		ids := f.blocked(3)
		f.enqueue(outbox.Message{Topic: "invoices", StreamKey: "s"})
		f.settle(settled(outbox.Fail, f.claim("invoices")...)...)

		all, err := f.outbox.BlockedStreams(f.ctx(), outbox.ListParams{})
		f.NoError(err)
		f.Len(all, 2)
		orders, err := f.outbox.BlockedStreams(f.ctx(), outbox.ListParams{Topic: "orders"})
		f.NoError(err)
		f.Equal(all[:1], orders)
		f.between(from, f.now(), orders[0].Since)
		orders[0].Since = time.Time{}
		f.Equal(outbox.BlockedStream{Topic: "orders", StreamKey: "stream 0", Head: ids[0], LastError: "no such customer", Waiting: 2}, orders[0])
		one, err := f.outbox.BlockedStreams(f.ctx(), outbox.ListParams{Limit: 1})
		f.NoError(err)
		f.Len(one, 1)

		_, err = f.outbox.BlockedStreams(f.ctx(), outbox.ListParams{Limit: 1001})
		f.requireField(err, "ListParams.Limit")
		_, err = f.outbox.BlockedStreams(f.ctx(), outbox.ListParams{Topic: " orders"})
		f.requireField(err, "ListParams.Topic")
	})
}

func TestStream_RequeueStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.blocked(3)
		f.NoError(f.outbox.RequeueStream(f.ctx(), "orders", "stream 0"))
		held := f.claim("orders")
		f.Equal(ids, messageIDs(held))
		f.Zero(held[0].RetryCount)
		f.ErrorIs(f.outbox.RequeueStream(f.ctx(), "orders", "stream 0"), outbox.ErrStreamNotBlocked, "it is being served")
	})
}

func TestStream_SkipHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.blocked(3)
		f.NoError(f.outbox.SkipHead(f.ctx(), "orders", "stream 0"))
		held := f.claimUpTo(1, "orders")
		f.Equal(ids[1:2], messageIDs(held))
		f.Equal(int(outbox.Failed), f.row(ids[0]).status)
		f.ErrorIs(f.outbox.SkipHead(f.ctx(), "orders", "stream 0"), outbox.ErrStreamNotBlocked)
		f.ErrorIs(f.outbox.SkipHead(f.ctx(), "orders", "another"), outbox.ErrStreamNotBlocked)

		n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{IDs: ids[:1]})
		f.NoError(err)
		f.Equal(1, n)
		f.Empty(f.claim("orders"))
		f.settle(settled(outbox.Ack, held...)...)
		f.Equal([]outbox.MessageID{ids[0], ids[2]}, messageIDs(f.claim("orders")), "it is back in its place")
	})
}

func TestStream_DiscardStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		joins := f.joins()
		ids := f.blocked(1200)
		step := f.enqueue(outbox.Message{Topic: "orders", StreamKey: "stream 0", Delay: time.Hour})
		j, err := joins.Start(f.ctx(), f.db.DB, join.StartParams{ExpectedSteps: 1})
		f.NoError(err)
		f.NoError(joins.Attach(f.ctx(), f.db.DB, j, step...))
		f.Empty(f.claim("orders"))

		n, err := f.outbox.DiscardStream(f.ctx(), "orders", "stream 0")
		f.NoError(err)
		f.Equal(1200, n)
		f.Equal(1201, int(f.number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Failed)))
		status, err := joins.Get(f.ctx(), f.db.DB, j)
		f.NoError(err)
		f.Equal(join.Failed, status.Status)
		f.Equal(1, int(f.number("SELECT COUNT(*) FROM {outbox_lease}")), "that of what failed by hand; those of the discarded have ended")
		_, err = f.outbox.DiscardStream(f.ctx(), "orders", "stream 0")
		f.ErrorIs(err, outbox.ErrStreamNotBlocked)

		records, err := f.outbox.Get(f.ctx(), ids[0], ids[1])
		f.NoError(err)
		f.Equal("no such customer", records[0].LastError)
		f.Contains(records[1].LastError, "discarded")
		f.ordered("orders", 1, 1)
		f.Equal([]string{"0"}, uuids(f.claim("orders")), "what comes later is delivered")
	})
}

// What names no stream is refused by field, as is a key that databases compare differently.
func TestStream_BadKeys(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, key := range []string{strings.Repeat("x", 256), strings.Repeat("🙂", 128), " a", "a\n", "a\x00b", "\xff"} {
			_, err := f.outbox.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders", StreamKey: key})
			f.requireField(err, "StreamKey")
			f.requireField(f.outbox.SkipHead(f.ctx(), "orders", key), "StreamKey")
		}
		f.requireField(f.outbox.RequeueStream(f.ctx(), "orders", ""), "StreamKey")
		_, err := f.outbox.DiscardStream(f.ctx(), "", "a")
		f.requireField(err, "Topic")
		f.requireField(f.outbox.SkipHead(f.ctx(), "orders ", "a"), "Topic")
		_, err = f.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders"), Run: -1})
		f.requireField(err, "ClaimParams.Run")
		_, err = outbox.New(f.db.DB, outbox.Config{Dialect: f.config.Dialect, OnStreamFailure: 7}, nil)
		f.requireField(err, "OnStreamFailure")
		f.Empty(f.claim("orders"))
		f.enqueue(outbox.Message{Topic: "orders", StreamKey: strings.Repeat("x", 255)})
		f.Len(f.claim("orders"), 1)
	})
}

// The topics tell what waits in streams, and how many are blocked.
func TestStream_TopicsCountThem(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		backlog := func() (waiting, blocked int) {
			t.Helper()
			topics, err := f.outbox.Topics(f.ctx())
			f.NoError(err)
			if len(topics) == 0 {
				return 0, 0
			}
			f.Len(topics, 1)
			f.Equal("orders", topics[0].Topic)
			f.GreaterOrEqual(topics[0].Age, time.Duration(0))
			return topics[0].Waiting, topics[0].BlockedStreams
		}
		is := func(waiting, blocked int) {
			t.Helper()
			w, b := backlog()
			f.Equal([]int{waiting, blocked}, []int{w, b})
		}
		f.ordered("orders", 2, 3)
		is(6, 0)
		held := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 2})
		is(4, 0)
		f.enqueueN("orders", 5)
		is(9, 0)
		f.settle(settled(outbox.Fail, held[0])...)
		is(7, 1)
		f.settle(settled(outbox.Ack, held[1])...)
		is(7, 1)
		f.settle(settled(outbox.Ack, f.claim("orders")...)...)
		is(0, 1)
		f.NoError(f.outbox.SkipHead(f.ctx(), "orders", held[0].StreamKey))
		is(2, 0)
	})
}
