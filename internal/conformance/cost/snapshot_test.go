package cost_test

import (
	"context"
	"database/sql"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// keepsDeadRows: an open snapshot makes the database keep what was written over, and claims meet it in the indexes.
var keepsDeadRows = suite.NewCapability("dead rows under an open snapshot", func(_ context.Context, db *testdb.DB) (string, error) {
	if db.Name == testdb.Postgres {
		return "", nil
	}
	return "it keeps none in its indexes", nil
})

// Messages come and go for minutes while a transaction, such as a dump, keeps a snapshot open. At full size a claim in the last minute
// takes at most twice as long as in the first.
func TestLong_ClaimsBesideASnapshotOfMinutes(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(keepsDeadRows)
		f.claimsBesideASnapshot(0)
	})
}

// The same with messages of a thousand streams.
func TestLong_ClaimsOfStreamsBesideASnapshotOfMinutes(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(keepsDeadRows)
		f.claimsBesideASnapshot(1000)
	})
}

// While a snapshot is open, a claim of streams does not read through all that has been routed since.
func TestTrap_ClaimOfStreamsBesideASnapshot(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(keepsDeadRows)
		f = &fixture{f.Alone()}
		snapshot := f.snapshot()
		const rounds, n = 10, 1000
		for range rounds {
			f.Ordered("orders", n, 1)
			for left := n; left > 0; {
				held := f.ClaimUpTo(left, "orders")
				f.NotEmpty(held)
				f.Settle(suite.Settled(outbox.Ack, held...)...)
				left -= len(held)
			}
		}
		entries := f.entriesRead("outbox_arrival", func(o *outbox.Outbox, _ *sql.DB) {
			claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 10})
			f.NoError(err)
			f.Empty(claimed)
		})
		f.NoError(snapshot.Rollback())
		f.Less(entries, rounds*n/2, "entries of arrivals that a claim reads")
	})
}

// While a snapshot is open, a Sequencer does not read through all that has got its position since.
func TestTrap_StampingBesideASnapshot(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(keepsDeadRows)
		f = &fixture{f.Alone()}
		snapshot := f.snapshot()
		const rounds, n = 10, 1000
		for range rounds {
			f.LogN("orders", 0, n)
			f.Stamp()
		}
		entries := f.entriesRead("outbox_log_pending", func(_ *outbox.Outbox, db *sql.DB) { f.StampOn(db) })
		f.NoError(snapshot.Rollback())
		f.Less(entries, rounds*n/2, "entries of pending messages that a round reads")
	})
}

// entriesRead are the index entries of a table that a call reads, with the statistics that autovacuum may make at any time.
func (f *fixture) entriesRead(table string, call func(*outbox.Outbox, *sql.DB)) int {
	f.T.Helper()
	f.Exec("ANALYZE %s", f.Object(table))
	_, _, entries := f.countReads(table, call)
	return entries
}

func (f *fixture) claimsBesideASnapshot(streams int) {
	f.T.Helper()
	load := steady{length: 2 * time.Second, window: time.Second, perSecond: 200, streams: streams}
	full := os.Getenv("OUTBOX_TEST_SNAPSHOT_MINUTES") != ""
	if full {
		load.length = f.fromEnv("OUTBOX_TEST_SNAPSHOT_MINUTES", time.Minute)
		load.window = min(time.Minute, load.length/2)
		load.perSecond = int(f.fromEnv("OUTBOX_TEST_SNAPSHOT_RATE", 1))
	}
	for name, deleted := range map[string]bool{"kept": false, "deleted": true} {
		first, last := (&fixture{f.Alone()}).besideASnapshot(load, deleted)
		f.NotEmpty(first, "claims at the beginning")
		f.NotEmpty(last, "claims at the end")
		before, after := suite.Median(first), suite.Median(last)
		f.figure(map[string]any{"figure": "claims beside a snapshot, " + name, "streams": streams, "minutes": load.length.Minutes(), "per_second": load.perSecond,
			"first_p50_ms": before.Seconds() * 1000, "last_p50_ms": after.Seconds() * 1000, "first_claims": len(first), "last_claims": len(last)})
		if full {
			f.LessOrEqual(after, 2*before, "a claim's p50, %s", name)
		}
	}
}

// A steady load: so many messages a second for a time, each of another stream in turn, or without streams. The first and the last window
// of it are compared.
type steady struct {
	length, window time.Duration
	perSecond      int
	streams        int
}

// messages are those numbered from and less than to.
func (s steady) messages(from, to int) (messages []outbox.Message) {
	for i := from; i < to; i++ {
		m := outbox.Message{Topic: "orders"}
		if s.streams > 0 {
			m.StreamKey = suite.StreamKey(i % s.streams)
		}
		messages = append(messages, m)
	}
	return messages
}

// besideASnapshot publishes and handles at a rate while a snapshot is open, and returns how long the claims of the first and of the last
// window took.
func (f *fixture) besideASnapshot(load steady, deleted bool) (first, last []time.Duration) {
	f.T.Helper()
	snapshot := f.snapshot()
	begun := time.Now()
	var mu sync.Mutex
	var acked atomic.Int64
	sub := f.Subscriber(func(c *outbox.SubscriberConfig) {
		c.DeleteOnAck = deleted
		c.Hooks.OnSettle = func(e outbox.SettleEvent) { acked.Add(int64(e.Outcomes[outbox.Ack] - e.Refused)) }
		c.Hooks.OnClaim = func(e outbox.ClaimEvent) {
			if e.Messages == 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			switch at := time.Since(begun); {
			case at < load.window:
				first = append(first, e.Took)
			case at >= load.length-load.window && at < load.length:
				last = append(last, e.Took)
			}
		}
	})
	queue := f.Subscribe(sub, "orders")
	go func() {
		for m := range queue {
			m.Ack()
		}
	}()

	var published int
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for time.Since(begun) < load.length {
		if due := int(time.Since(begun).Seconds() * float64(load.perSecond)); due > published {
			f.Enqueue(load.messages(published, due)...)
			published = due
		}
		<-tick.C
	}
	f.Eventually(func() bool { return acked.Load() == int64(published) }, suite.Patience, suite.Tick, "what was published is acked")
	f.NoError(sub.Close())
	f.NoError(snapshot.Rollback())
	return first, last
}

// snapshot opens one, as a dump does. It lasts until it is rolled back.
func (f *fixture) snapshot() *sql.Tx {
	f.T.Helper()
	snapshot, err := f.DB.BeginTx(f.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	f.NoError(err)
	_, err = snapshot.ExecContext(f.Context(), "SELECT 1")
	f.NoError(err)
	return snapshot
}

// fromEnv is a number that an environment variable has, in units.
func (f *fixture) fromEnv(name string, unit time.Duration) time.Duration {
	f.T.Helper()
	n, err := strconv.Atoi(os.Getenv(name))
	f.NoError(err, name)
	return time.Duration(n) * unit
}
