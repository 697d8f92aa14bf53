package cost_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// What works on streams reads little of many, whatever the database believes about its tables.
func TestLong_EachStatementOfStreamsIsDrivenFromItsKeys(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(setsStatistics)
		f = &fixture{f.Alone()}
		f.uncounted()
		const keys = 10
		take := func(topic string, limit, run int) []outbox.Claimed { // no lease expires while a busy machine is at it
			return f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: limit, Run: run, Lease: time.Hour})
		}
		f.Ordered("done", 2000, 1)
		for range 2 {
			f.Empty(f.Settle(suite.Settled(outbox.Ack, take("done", 1000, 0)...)...))
		}
		f.Ordered("blocked", 1000, 3)
		failed := take("blocked", 1000, 1)
		f.Empty(f.Settle(suite.Settled(outbox.Fail, failed...)...))
		f.Ordered("hot", 1, 3000)
		for f.Number("SELECT COUNT(*) FROM {arrivals} a") > 0 {
			f.ClaimUpTo(1, "none")
		}
		f.Len(take("hot", 1, 0), 1)
		f.Ordered("orders", 1000, 3)
		for f.Number("SELECT COUNT(*) FROM {arrivals} a") > 0 {
			f.ClaimUpTo(1, "none")
		}
		held := take("orders", keys, 1)
		f.Len(held, keys)
		f.vacuumed()

		claim := func(c *counted, topic string) error {
			_, err := c.outbox.Claim(c.Context(), outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: keys})
			return err
		}
		settle := func(c *counted, outcome outbox.Outcome) error { // not in a caller's transaction, which frees no stream
			_, err := c.outbox.Settle(c.Context(), c.pool, suite.Settled(outcome, held...))
			return err
		}
		f.underAllStatistics(map[string]func(c *counted) error{
			"claim of many": func(c *counted) error { return claim(c, "orders") },
			"claim of none": func(c *counted) error { return claim(c, "blocked") },
			"claim of one":  func(c *counted) error { return claim(c, "hot") },
			"ack":           func(c *counted) error { return settle(c, outbox.Ack) },
			"retry":         func(c *counted) error { return settle(c, outbox.Retry) },
			"fail":          func(c *counted) error { return settle(c, outbox.Fail) },
			"requeue": func(c *counted) error {
				_, err := c.outbox.Requeue(c.Context(), outbox.RequeueParams{IDs: suite.MessageIDs(failed[500 : 500+keys])})
				return err
			},
			"requeue stream": func(c *counted) error { return c.outbox.RequeueStream(c.Context(), "blocked", suite.StreamKey(0)) },
			"skip head":      func(c *counted) error { return c.outbox.SkipHead(c.Context(), "blocked", suite.StreamKey(0)) },
			"discard": func(c *counted) error {
				_, err := c.outbox.DiscardStream(c.Context(), "blocked", suite.StreamKey(0))
				return err
			},
			"list": func(c *counted) error {
				_, err := c.outbox.BlockedStreams(c.Context(), outbox.ListParams{Limit: keys})
				return err
			},
			"enqueue": func(c *counted) error {
				_, err := c.outbox.Enqueue(c.Context(), c.x, suite.OrderedMessages("new", keys, 0, 1)...)
				return err
			},
		})
	})
}
