package streams_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// blocked publishes messages of one stream and fails the first for good.
func (f *fixture) blocked(messages int) []outbox.MessageID {
	f.T.Helper()
	ids := f.Ordered("orders", 1, messages)
	held := f.ClaimUpTo(1, "orders")
	f.Equal(ids[:1], suite.MessageIDs(held))
	f.NoError(f.Outbox.Fail(f.Context(), held[0].Receipt.Owner, errors.New("no such customer"), held[0].Receipt.Seq))
	f.Empty(f.Claim("orders"))
	return ids
}

func TestStream_BlockedStreamsAreListed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		from := f.Now()
		ids := f.blocked(3)
		f.Enqueue(outbox.Message{Topic: "invoices", StreamKey: "s"})
		f.Settle(suite.Settled(outbox.Fail, f.Claim("invoices")...)...)

		all, err := f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{})
		f.NoError(err)
		f.Len(all, 2)
		orders, err := f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{Topic: "orders"})
		f.NoError(err)
		f.Equal(all[:1], orders)
		f.Between(from, f.Now(), orders[0].Since)
		orders[0].Since = time.Time{}
		f.Equal(outbox.BlockedStream{Topic: "orders", StreamKey: "stream 0", Head: ids[0], LastError: "no such customer", Waiting: 2}, orders[0])
		one, err := f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{Limit: 1})
		f.NoError(err)
		f.Len(one, 1)

		_, err = f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{Limit: 1001})
		f.RequireField(err, "ListParams.Limit")
		_, err = f.Outbox.BlockedStreams(f.Context(), outbox.ListParams{Topic: " orders"})
		f.RequireField(err, "ListParams.Topic")
	})
}

func TestStream_RequeueStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.blocked(3)
		f.NoError(f.Outbox.RequeueStream(f.Context(), "orders", "stream 0"))
		held := f.Claim("orders")
		f.Equal(ids, suite.MessageIDs(held))
		f.Zero(held[0].RetryCount)
		f.ErrorIs(f.Outbox.RequeueStream(f.Context(), "orders", "stream 0"), outbox.ErrNotBlocked, "it is being served")
	})
}

func TestStream_SkipHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.blocked(3)
		f.NoError(f.Outbox.SkipHead(f.Context(), "orders", "stream 0"))
		held := f.ClaimUpTo(1, "orders")
		f.Equal(ids[1:2], suite.MessageIDs(held))
		f.Equal(int(outbox.Failed), f.Row(ids[0]).Status)
		f.ErrorIs(f.Outbox.SkipHead(f.Context(), "orders", "stream 0"), outbox.ErrNotBlocked)
		f.ErrorIs(f.Outbox.SkipHead(f.Context(), "orders", "another"), outbox.ErrNotBlocked)

		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{IDs: ids[:1]})
		f.NoError(err)
		f.Equal(1, n)
		f.Empty(f.Claim("orders"))
		f.Settle(suite.Settled(outbox.Ack, held...)...)
		f.Equal([]outbox.MessageID{ids[0], ids[2]}, suite.MessageIDs(f.Claim("orders")), "it is back in its place")
	})
}

func TestStream_DiscardStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		joins := f.Joins()
		ids := f.blocked(1200)
		step := f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "stream 0", Delay: time.Hour})
		j, err := joins.Start(f.Context(), f.DB.DB, join.StartParams{ExpectedSteps: 1})
		f.NoError(err)
		f.NoError(joins.Attach(f.Context(), f.DB.DB, j, step...))
		f.Empty(f.Claim("orders"))

		n, err := f.Outbox.DiscardStream(f.Context(), "orders", "stream 0")
		f.NoError(err)
		f.Equal(1200, n)
		f.Equal(1201, int(f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Failed)))
		status, err := joins.Get(f.Context(), f.DB.DB, j)
		f.NoError(err)
		f.Equal(join.Failed, status.Status)
		f.Equal(1, int(f.Number("SELECT COUNT(*) FROM {outbox_lease}")), "that of what failed by hand; those of the discarded have ended")
		_, err = f.Outbox.DiscardStream(f.Context(), "orders", "stream 0")
		f.ErrorIs(err, outbox.ErrNotBlocked)

		records, err := f.Outbox.Get(f.Context(), ids[0], ids[1])
		f.NoError(err)
		f.Equal("no such customer", records[0].LastError)
		f.Contains(records[1].LastError, "discarded")
		f.Ordered("orders", 1, 1)
		f.Equal([]string{"0"}, suite.UUIDs(f.Claim("orders")), "what comes later is delivered")
	})
}

// A lease that is over before its batch has ended: what was refused is taken again, and counted once.
func TestTrap_DiscardStreamCountsWhatItEnds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.blocked(5)
		late := true
		o, ok := seam.Outbox(f.Outbox).Around(func(ctx context.Context, batch seam.Batch) (int, error) {
			n, err := batch(ctx, f.DB.DB)
			if late {
				late = false
				f.ExpireLeases()
				_, err := f.Outbox.ReapExpired(ctx)
				f.NoError(err)
			}
			return n, err
		}).(*outbox.Outbox)
		f.True(ok)
		n, err := o.DiscardStream(f.Context(), "orders", "stream 0")
		f.NoError(err)
		f.Equal(4, n)
		f.Equal(5, int(f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Failed)))
	})
}

// What names no stream is refused by field, as is a key that databases compare differently.
func TestStream_BadKeys(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, key := range []string{strings.Repeat("x", 256), strings.Repeat("🙂", 128), " a", "a\n", "a\x00b", "\xff"} {
			_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", StreamKey: key})
			f.RequireField(err, "StreamKey")
			f.RequireField(f.Outbox.SkipHead(f.Context(), "orders", key), "StreamKey")
		}
		f.RequireField(f.Outbox.RequeueStream(f.Context(), "orders", ""), "StreamKey")
		_, err := f.Outbox.DiscardStream(f.Context(), "", "a")
		f.RequireField(err, "Topic")
		f.RequireField(f.Outbox.SkipHead(f.Context(), "orders ", "a"), "Topic")
		_, err = f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Run: -1})
		f.RequireField(err, "ClaimParams.Run")
		_, err = outbox.New(f.DB.DB, outbox.Config{Dialect: f.Config.Dialect, OnStreamFailure: 7}, nil)
		f.RequireField(err, "Config.OnStreamFailure")
		f.Empty(f.Claim("orders"))
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: strings.Repeat("x", 255)})
		f.Len(f.Claim("orders"), 1)
	})
}

// The topics tell what waits in streams, and how many are blocked.
func TestStream_TopicsCountThem(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		backlog := func() (waiting, blocked int) {
			t.Helper()
			topics, err := f.Outbox.Topics(f.Context())
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
		f.Ordered("orders", 2, 3)
		is(6, 0)
		held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 2})
		is(4, 0)
		f.EnqueueN("orders", 5)
		is(9, 0)
		f.Settle(suite.Settled(outbox.Fail, held[0])...)
		is(7, 1)
		f.Settle(suite.Settled(outbox.Ack, held[1])...)
		is(7, 1)
		f.Settle(suite.Settled(outbox.Ack, f.Claim("orders")...)...)
		is(0, 1)
		f.NoError(f.Outbox.SkipHead(f.Context(), "orders", held[0].StreamKey))
		is(2, 0)
	})
}

// A stream that blocks is an error in the log, with its key: nothing else would say that messages wait now.
func TestTrap_AStreamThatBlocksSaysSo(t *testing.T) {
	const blocks = "A message that failed for good blocks its stream"
	for name, policy := range map[string]outbox.FailurePolicy{"block": outbox.Block, "dead letter": outbox.DeadLetter} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				book := suite.NewLogBook()
				s := f.SubscriberOn(f.DB.DB, book, func(c *outbox.SubscriberConfig) { c.MaxAttempts, c.OnStreamFailure = 1, policy })
				messages := f.Subscribe(s, "orders")
				id := f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "customer 7"})[0]
				f.Receive(messages).Nack()
				f.Becomes(id, outbox.Failed)
				f.Equal("customer 7", f.Await(book, "ERROR", "Handler did not succeed").Fields["stream_key"])
				if policy == outbox.Block {
					line := f.Await(book, "ERROR", blocks)
					f.Equal("orders", line.Fields["topic"])
					f.Equal("customer 7", line.Fields["stream_key"])
					f.Equal(id.String(), line.Fields["message_id"])
				}
				plain := f.Enqueue(outbox.Message{Topic: "orders"})[0]
				f.Receive(messages).Nack()
				f.Becomes(plain, outbox.Failed)
				f.NoError(s.Close())
				f.Len(book.At("ERROR", blocks), map[outbox.FailurePolicy]int{outbox.Block: 1}[policy])
			})
		})
	}
}
