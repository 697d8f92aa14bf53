package schema_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

func TestOBX107_ATopicHasAtMost255Characters(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, topic := range []string{"x", suite.LongestPlain, suite.LongestDouble} {
			f.EnqueueN(topic, 1)
			claimed := f.Claim(topic)
			f.Len(claimed, 1)
			f.Equal(topic, claimed[0].Topic)
		}
		for _, topic := range suite.TooLong {
			_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: topic})
			f.RequireField(err, "Topic")
			_, err = f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas(topic)})
			f.RequireField(err, "ClaimParams.Topics")
		}
	})
}

func TestOBX109_ACorrelationIDHasAtMost255Characters(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, id := range []string{"", "x", suite.LongestPlain, suite.LongestDouble} {
			f.Enqueue(
				outbox.Message{Topic: "orders", CorrelationID: id, UUID: id, StreamKey: id},
				outbox.Message{Topic: "orders", Headers: map[string]string{"correlation_id": id}})
			for _, c := range f.Claim("orders") {
				f.Equal(id, c.CorrelationID)
				if c.Headers == nil {
					f.Equal(id, c.UUID)
					f.Equal(id, c.StreamKey)
				}
			}
		}
		for _, id := range suite.TooLong {
			for field, message := range map[string]outbox.Message{
				"CorrelationID": {CorrelationID: id}, "UUID": {UUID: id}, "StreamKey": {StreamKey: id},
				"Headers[correlation_id]": {Headers: map[string]string{"correlation_id": id}},
			} {
				message.Topic = "orders"
				_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, message)
				f.RequireField(err, field)
			}
		}
		f.Equal(8, f.Count())
	})
}

func TestOBX108_PayloadsOfAnySizeComeBackAsTheyWere(t *testing.T) {
	sizes := []int{0, 1, 255, 8000, 8001, 1 << 20, 8<<20 - 1, 8<<20 + 1}
	if !testing.Short() {
		sizes = append(sizes, 64<<20)
	}
	forEach(t, func(t *testing.T, f *fixture) {
		// All in one call: small ones share a statement, large ones go alone.
		var messages []outbox.Message
		for _, size := range sizes {
			messages = append(messages, outbox.Message{Topic: "orders", Payload: payload(size)})
		}
		f.Enqueue(messages...)
		claimed := f.Claim("orders")
		f.Len(claimed, len(sizes))
		for i, size := range sizes {
			f.True(bytes.Equal(messages[i].Payload, claimed[i].Payload), "%d bytes went in, %d came out, or others", size, len(claimed[i].Payload))
		}
	})
}

// payload is a run of all bytes that does not repeat with a power of two.
func payload(size int) []byte {
	const period = 257 * 255
	p := make([]byte, 0, size+period)
	for i := range min(size, period) {
		p = append(p, byte(i*7+i/257))
	}
	for len(p) < size {
		p = append(p, p[:period]...)
	}
	return p[:size]
}

func TestOBX110_AnyLeaseFromAMillisecondToADayIsAccepted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, lease := range []time.Duration{time.Millisecond, 10 * time.Second, 300 * time.Second, 24 * time.Hour} {
			f.EnqueueN("orders", 1)
			f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Lease: lease, GiveBack: -1}), 1)
		}
		for _, lease := range []time.Duration{-1, time.Millisecond - 1, 24*time.Hour + 1} {
			_, err := f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Lease: lease})
			f.RequireField(err, "ClaimParams.Lease")
		}
		// One of a millisecond ends by itself.
		f.Clear()
		f.EnqueueN("orders", 1)
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Lease: time.Millisecond}), 1)
		f.Eventually(func() bool {
			n, err := f.Outbox.ReapExpired(f.Context())
			return err == nil && n == 1
		}, 10*time.Second, time.Millisecond)
	})
}

func TestOBX111_ABatchOfUpTo1000IsAccepted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 1201)
		for _, limit := range []int{1, 100, 1000} {
			f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: limit}), limit)
		}
		_, err := f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 1001})
		f.RequireField(err, "ClaimParams.Limit")
	})
}

// The test counts calls instead of measuring time, which would fail on a busy machine; one call per message would show up.
func TestOBX112_ThousandsOfMessagesASecond(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const messages, batch = 3000, 500
		var log faults.Log
		pool := faults.Open(t, f.DB, log.Hooks())
		o := f.NewOutbox(pool)
		for range messages / batch {
			some := make([]outbox.Message, batch)
			for i := range some {
				some[i].Topic = "orders"
			}
			_, err := o.Enqueue(f.Context(), pool, some...)
			f.NoError(err)
		}
		for left := messages; left > 0; {
			claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: batch, Lease: time.Hour})
			f.NoError(err)
			f.NotEmpty(claimed)
			refused, err := o.Settle(f.Context(), pool, suite.Settled(outbox.Ack, claimed...))
			f.NoError(err)
			f.Empty(refused)
			left -= len(claimed)
		}
		statements := len(log.Take())
		t.Logf("%d messages enqueued, claimed and acked in %d statements", messages, statements)
		f.Less(statements, messages/10)
	})
}

func TestOtherTextsThatAreRefusedByName(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, test := range []struct {
			field   string
			message outbox.Message
		}{
			{"Topic", outbox.Message{Topic: "not \xff UTF-8"}},
			{"Topic", outbox.Message{Topic: "a NUL\x00"}},
			{"UUID", outbox.Message{Topic: "t", UUID: "a\x00b"}},
			{"CorrelationID", outbox.Message{Topic: "t", CorrelationID: "a\x00b"}},
			{"StreamKey", outbox.Message{Topic: "t", StreamKey: "a\x00b"}},
			{"StreamKey", outbox.Message{Topic: "t", StreamKey: "a "}},
			{"Headers", outbox.Message{Topic: "t", Headers: map[string]string{"k": "\xff"}}},
			{"Headers", outbox.Message{Topic: "t", Headers: map[string]string{"\xff": "v"}}},
			{"Delay", outbox.Message{Topic: "t", Delay: -1}},
			{"Delay", outbox.Message{Topic: "t", Delay: time.Second, DueAt: time.Now()}},
			{"DueAt", outbox.Message{Topic: "t", DueAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		} {
			_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "fine"}, test.message)
			f.RequireField(err, test.field)
		}
		f.Equal(0, f.Count())

		// A header that is refused is named.
		_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "t", Headers: map[string]string{"the_key": "\xff"}})
		f.ErrorContains(err, "the_key")
		// The last moment that every database can store is not refused.
		f.Enqueue(outbox.Message{Topic: "t", DueAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)})
		f.Empty(f.Claim("t"))
	})
}

func TestAnErrorOfAnyTextIsStored(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.UnescapesJSON)
		for _, text := range []string{"quotes \" and \\ and \n\t", "🙂", "'; DROP TABLE outbox; --", "<&>"} {
			c := f.ClaimOne("orders")
			f.NoError(f.Outbox.Fail(f.Context(), c.Receipt.Owner, errors.New(text), c.Receipt.Seq))
			f.Equal(text, f.Row(c.ID).LastError)
		}
	})
}

func TestAnErrorThatCannotBeStoredAsItIsIsMadeStorable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		texts := []string{"a NUL \x00 in it", "not \xff UTF-8"}
		if f.Lacks(suite.LongJSONTexts) == "" {
			texts = append(texts, strings.Repeat("long ", 100_000), strings.Repeat("🙂", 10_000))
		}
		for _, text := range texts {
			c := f.ClaimOne("orders")
			f.NoError(f.Outbox.Fail(f.Context(), c.Receipt.Owner, errors.New(text), c.Receipt.Seq))
			got := f.Row(c.ID).LastError
			f.NotEmpty(got)
			f.Less(len(got), 50_000)
			f.Equal([]rune(text)[:2], []rune(got)[:2])
		}
	})
}
