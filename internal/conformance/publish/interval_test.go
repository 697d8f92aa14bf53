package publish

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

func every(d time.Duration) func(*outbox.PublisherConfig) {
	return func(c *outbox.PublisherConfig) { c.Flush, c.FlushInterval = outbox.Interval, d }
}

// A timer that every call starts again never fires while the traffic is steady.
func TestIntervalTheOldestCallBoundsTheWait(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const interval = 50 * time.Millisecond
		c := f.crowd(f.publisher(f.DB.DB, every(interval)))
		var first atomic.Bool
		c.all.Go(func() {
			f.NoError(c.p.Publish(topic, msg(t.Context(), "oldest")))
			first.Store(true)
		})
		started := time.Now()
		steady := time.NewTicker(interval / 10)
		defer steady.Stop()
		for i := 0; !first.Load(); i++ {
			c.publish(t.Context(), fmt.Sprint(i))
			f.Less(time.Since(started), time.Minute, "the first call still waits for others")
			<-steady.C
		}
		c.allSucceed()
	})
}

func TestIntervalGathersAndFlushHurries(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.crowd(f.publisher(f.DB.DB, every(time.Minute)))
		for i := range 10 {
			c.inLine(i, fmt.Sprint(i))
		}
		f.Empty(f.uuids())
		f.NoError(c.p.Flush(t.Context()))
		f.Len(f.uuids(), 10, "when Flush returns")
		c.allSucceed()
		f.Equal(1, f.commits())
		f.NoError(c.p.Flush(t.Context()), "with nothing to flush")

		c.inLine(0, "10")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g := f.gate()
		stuck := f.crowd(f.publisher(g.DB, every(time.Minute)))
		stuck.inLine(0, "11")
		f.ErrorIs(stuck.p.Flush(ctx), context.Canceled)
		g.open()
		f.NoError(c.p.Close(), "Close hurries, too")
		f.NoError(stuck.p.Close())
		c.allSucceed()
		stuck.allSucceed()
	})
}

func TestIntervalAFullBatchWaitsForNobody(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, full := range []func(*outbox.PublisherConfig){
			func(c *outbox.PublisherConfig) { c.FlushMessages = 5 },
			func(c *outbox.PublisherConfig) { c.FlushBytes = 5 * len("payload 0") },
			func(c *outbox.PublisherConfig) { c.FlushWaiting = 5 },
		} {
			c := f.crowd(f.publisher(f.DB.DB, every(time.Minute), full))
			for i := range 5 {
				c.publish(t.Context(), fmt.Sprint(i))
			}
			c.allSucceed()
		}
		f.Equal(3, f.commits())
	})
}
