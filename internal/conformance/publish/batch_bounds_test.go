package publish

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

func TestBatchBoundsRowsAndBytes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, limit := range map[string]func(*outbox.PublisherConfig){
			"rows":  func(c *outbox.PublisherConfig) { c.FlushMessages = 10 },
			"bytes": func(c *outbox.PublisherConfig) { c.FlushBytes = 10 * len("payload 10") },
		} {
			f.events = nil
			g := f.gate()
			c := f.crowd(f.publisher(g.DB, batch, limit, oneStream))
			ahead := c.behind(g)
			for i := range 25 {
				c.inLine(i, fmt.Sprint(10+i))
			}
			c.inLine(25, numbers(40, 60)...)
			c.inLine(26, "60")
			g.open()
			c.allSucceed()
			f.Equal(len(ahead)+5, f.commits(), name)
			f.LessOrEqual(slices.Max(f.calls()), 10, name)
			f.Equal(slices.Concat(numbers(10, 35), numbers(40, 61)), slices.DeleteFunc(f.uuids(), func(uuid string) bool { return slices.Contains(ahead, uuid) }), "of a stream, in the order of the calls; %s", name)
			f.Exec("DELETE FROM {outbox_state}")
			f.Exec("DELETE FROM {outbox}")
		}
	})
}

// Whoever finds no place waits for one, as long as its context allows.
func TestBatchBoundsThoseThatWait(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		g := f.gate()
		places := 2
		if f.DB.Name == testdb.SQLite {
			places = 1
		}
		c := f.crowd(f.publisher(g.DB, batch, func(c *outbox.PublisherConfig) { c.FlushWaiting = places + 1 }))
		ahead := c.behind(g)
		f.Len(ahead, places)
		c.inLine(0, "0")
		ctx, cancel := context.WithCancel(t.Context())
		c.publish(ctx, "gives up")
		c.publish(t.Context(), "1")
		cancel()
		f.Eventually(func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.errs) == 1 }, testoutbox.Patience, time.Millisecond)
		f.ErrorIs(c.errs["gives up"], context.Canceled)
		f.Equal(1, seam.Publisher(c.p).Waiting())
		g.open()
		f.NoError(c.end()["1"])
		f.ElementsMatch(append(ahead, "0", "1"), f.uuids())
	})
}

func TestBatchKeepsTheOrderOfAGoroutineAndOfAStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, batch, func(c *outbox.PublisherConfig) {
			c.FlushMessages = 7
			c.StreamKey = func(_ string, m *message.Message) string { key, _, _ := strings.Cut(m.UUID, " "); return key }
		})
		const goroutines, each = 16, 20
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				for i := range each {
					f.NoError(p.Publish(topic, msg(t.Context(), fmt.Sprintf("%d %d", g, i))))
				}
			})
		}
		all.Wait()
		next := map[string]int{}
		for _, uuid := range f.uuids() {
			g, i, _ := strings.Cut(uuid, " ")
			f.Equal(fmt.Sprint(next[g]), i, "of goroutine and stream %s", g)
			next[g]++
		}
		f.Len(next, goroutines)
	})
}

func TestBatchInATransactionGoesThroughIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, strategy := range []outbox.FlushStrategy{outbox.Batch, outbox.Interval} {
			p := f.publisher(f.DB.DB, with(strategy))
			f.ErrorIs(f.inTx(func(ctx context.Context, tx *sql.Tx) error {
				f.NoError(p.Publish(topic, msg(ctx, "1")))
				f.Equal(1, f.visible(tx))
				return errBoom
			}), errBoom)
		}
		f.Empty(f.uuids())
	})
}

func TestBatchCloseWritesWhatWaitsAndRefusesTheRest(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		g := f.gate()
		c := f.crowd(f.publisher(g.DB, batch))
		ahead := c.behind(g)
		for i := range 10 {
			c.inLine(i, fmt.Sprint(i))
		}
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() { f.NoError(c.p.Close()) })
		}
		f.Eventually(func() bool { return errors.Is(c.p.Publish(topic), outbox.ErrClosed) }, testoutbox.Patience, time.Millisecond)
		f.ErrorIs(c.p.Publish(topic, msg(t.Context(), "late")), outbox.ErrClosed)
		g.open()
		closing.Wait()
		f.Len(f.uuids(), len(ahead)+10, "when Close returns")
		c.allSucceed()
	})
}

func TestBatchCloseFailsByNameWhatTakesTooLong(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		g := f.gate()
		p, err := outbox.NewPublisher(g.DB, f.config(batch, func(c *outbox.PublisherConfig) { c.CloseTimeout = 20 * time.Millisecond }), nil)
		f.NoError(err)
		c := f.crowd(p)
		ahead := c.behind(g)
		for i := range 10 {
			c.inLine(i, fmt.Sprint(i))
		}
		err = p.Close()
		f.ErrorContains(err, fmt.Sprintf("10 calls that were not sent and %d whose outcome is unknown", len(ahead)))
		f.Equal(err, p.Close())
		for uuid, err := range c.end() {
			f.ErrorIs(err, outbox.ErrClosed)
			f.Equal(slices.Contains(ahead, uuid), errors.Is(err, outbox.ErrUnknownOutcome), uuid)
		}
		f.Empty(f.uuids())
		g.open()
	})
}
