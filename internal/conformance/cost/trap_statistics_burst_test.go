package cost_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// The database counts the rows of a queue that is almost empty, and then a burst comes. Whatever it believes by then, each
// statement is driven from its keys. At full size the second burst is as fast as the first.
func TestLong_StatisticsOfAnEmptyTable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(setsStatistics)
		for name, deleted := range map[string]bool{"deleted": true, "kept": false} {
			if os.Getenv("OUTBOX_TEST_STATISTICS") == "full" {
				f.burstTwice(name, 20_000, deleted)
				continue
			}
			f.burst(2000, deleted)
			f.leaveOne()
			f.Clear()
			f.load(5000)
			f.tensOfRows()
			f.Clear()
			f.burst(2000, deleted)
		}
	})
}

// burstTwice measures a burst before and after the database has counted one row, in turn on tables of their own.
func (f *fixture) burstTwice(name string, n int, deleted bool) {
	f.T.Helper()
	const rounds = 3
	var first, second []time.Duration
	for round := range rounds {
		table := &fixture{suite.New(f.T, f.DB, f.Either("burst_", "Burst")+name+string(rune('a'+round)))}
		table.Migrate()
		first = append(first, table.burst(n, deleted))
		table.leaveOne()
		second = append(second, table.burst(n, deleted))
	}
	f.figure(map[string]any{"figure": "burst on a fresh table, " + name, "per_second": perSecond(n, suite.Median(first))})
	f.figure(map[string]any{"figure": "burst after statistics of one row, " + name, "per_second": perSecond(n, suite.Median(second))})
	f.Less(suite.Median(second), suite.Median(first)*5/4, "the second burst, %s, takes longer than the first", name)
}

// burst publishes and drains n messages, and answers how long that took.
func (f *fixture) burst(n int, deleted bool) time.Duration {
	f.T.Helper()
	const batch = 1000
	o := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.DeleteOnAck = deleted })
	started := time.Now()
	for range n / batch {
		f.EnqueueN("burst", batch)
	}
	for range n / batch {
		claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("burst"), Limit: batch, Lease: time.Minute})
		f.NoError(err)
		f.Len(claimed, batch)
		var receipts []outbox.Receipt
		for _, c := range claimed {
			receipts = append(receipts, c.Receipt)
		}
		refused, err := o.Renew(f.Context(), time.Minute, receipts...)
		f.NoError(err)
		f.Empty(refused)
		refused, err = o.Settle(f.Context(), f.DB, suite.Settled(outbox.Ack, claimed...))
		f.NoError(err)
		f.Empty(refused)
	}
	if !deleted {
		for gone := 0; gone < n; {
			purged, err := o.Purge(f.Context(), outbox.PurgeParams{OlderThan: time.Nanosecond})
			f.NoError(err)
			gone += purged
		}
	}
	return time.Since(started)
}

// leaveOne has the database count a table with one row, at the end of all the space that the others have left.
func (f *fixture) leaveOne() {
	f.T.Helper()
	f.EnqueueN("left", 1)
	f.Equal(1, f.Count())
	f.analyze()
}

func perSecond(n int, d time.Duration) int { return int(float64(n) / d.Seconds()) }

// figure prints what was measured as a line of JSON.
func (f *fixture) figure(values map[string]any) {
	f.T.Helper()
	values["backend"] = f.DB.Name
	line, err := json.Marshal(values)
	f.NoError(err)
	f.T.Logf("%s", line)
}
