package publish

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

var batch = with(outbox.Batch)

func oneStream(c *outbox.PublisherConfig) {
	c.StreamKey = func(_ string, m *message.Message) string {
		if strings.HasPrefix(m.UUID, "ahead") {
			return ""
		}
		return "one"
	}
}

// A gate holds up the inserts of a pool.
type gate struct {
	*sql.DB
	sent    chan struct{}              // has a value for each insert that has come to the gate
	opened  chan struct{}              // closed when all may pass
	inserts atomic.Int32               // but those of crowd.behind
	fault   func(n int32) faults.Fault // of the nth of these, from 1; may be nil
}

func (f *fixture) gate() *gate {
	g := &gate{sent: make(chan struct{}, 1000), opened: make(chan struct{})}
	g.DB = faults.Open(f.T, f.DB, faults.Hooks{
		Before: func(ctx context.Context, s faults.Statement) error {
			if !inserts(s) {
				return nil
			}
			if !ahead(s) {
				g.inserts.Add(1)
			}
			g.sent <- struct{}{}
			select {
			case <-g.opened:
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		},
		Fault: func(_ context.Context, s faults.Statement) faults.Fault {
			if g.fault == nil || !inserts(s) || ahead(s) {
				return faults.Fault{}
			}
			return g.fault(g.inserts.Load())
		},
	})
	return g
}

// ahead reports whether a statement is one of crowd.behind.
func ahead(s faults.Statement) bool {
	return slices.ContainsFunc(s.Args, func(arg any) bool { text, _ := arg.(string); return strings.Contains(text, "ahead ") })
}

func (g *gate) open() { close(g.opened) }

// A crowd are the calls of many goroutines.
type crowd struct {
	f   *fixture
	p   *outbox.Publisher
	all sync.WaitGroup

	mu   sync.Mutex
	errs map[string]error
}

func (f *fixture) crowd(p *outbox.Publisher) *crowd {
	return &crowd{f: f, p: p, errs: map[string]error{}}
}

// publish has messages published by another goroutine, in one call.
func (c *crowd) publish(ctx context.Context, uuids ...string) {
	messages := make([]*message.Message, len(uuids))
	for i, uuid := range uuids {
		messages[i] = msg(ctx, uuid)
	}
	c.all.Go(func() {
		err := c.p.Publish(topic, messages...)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs[uuids[0]] = err
	})
}

// inLine is publish that returns once the call waits, so that the calls have an order. waiting are those before it.
func (c *crowd) inLine(waiting int, uuids ...string) {
	c.publish(c.f.T.Context(), uuids...)
	c.f.waits(c.p, waiting+1)
}

// waits waits until so many calls wait and are not sent.
func (f *fixture) waits(p *outbox.Publisher, n int) {
	f.Eventually(func() bool { return seam.Publisher(p).Waiting() == n }, testoutbox.Patience, time.Millisecond/2, "there are never %d calls that wait", n)
}

// end waits until all have returned, and returns their errors by the UUID of the first message.
func (c *crowd) end() map[string]error {
	c.all.Wait()
	return c.errs
}

func (c *crowd) allSucceed() {
	for uuid, err := range c.end() {
		c.f.NoError(err, uuid)
	}
}

// behind has all that may be written at a time wait at the gate, each a call by itself, behind which others gather. It
// returns their UUIDs.
func (c *crowd) behind(g *gate) (ahead []string) {
	ahead = []string{"ahead 0", "ahead 1"}
	if c.f.DB.Name == testdb.SQLite {
		ahead = ahead[:1]
	}
	for _, uuid := range ahead {
		c.publish(c.f.T.Context(), uuid)
		<-g.sent
	}
	return ahead
}

func TestBatchALoneCallWaitsForNobody(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.DB.DB, batch)
		for i := range 5 {
			f.NoError(p.Publish(topic, msg(t.Context(), fmt.Sprint(i))))
			f.Len(f.uuids(), i+1, "its row is there when Publish returns")
		}
		f.Equal([]int{1, 1, 1, 1, 1}, f.calls())
	})
}

// While one batch is committed, the next one gathers.
func TestBatchAThousandCallersAndASlowCommit(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		g := f.gate()
		c := f.crowd(f.publisher(g.DB, batch))
		ahead := c.behind(g)
		for i := range 1000 {
			c.publish(t.Context(), fmt.Sprint(i))
		}
		f.waits(c.p, 1000)
		f.Empty(f.uuids())
		f.Empty(f.calls(), "nobody is told before the commit")
		g.open()
		c.allSucceed()
		f.Len(f.uuids(), 1000+len(ahead))
		f.Equal(int32(1), g.inserts.Load())
	})
}

func TestBatchOneBadMessageOfAHundredFailsItself(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		taken, err := f.NewID()
		f.NoError(err)
		_, err = f.Outbox.Outbox.Enqueue(t.Context(), f.DB.DB, outbox.Message{ID: taken, Topic: topic, UUID: "taken"})
		f.NoError(err)
		g := f.gate()
		c := f.crowd(f.publisher(g.DB, batch, byUUID))
		ahead := c.behind(g)
		for i := range 99 {
			c.publish(t.Context(), fmt.Sprint(i))
		}
		c.publish(t.Context(), taken.String())
		f.waits(c.p, 100)
		var bad *outbox.FieldError
		f.ErrorAs(c.p.Publish(topic, msg(t.Context(), strings.Repeat("x", 256))), &bad, "what is no message does not get that far")
		g.open()
		for uuid, err := range c.end() {
			if uuid == taken.String() {
				f.ErrorIs(err, outbox.ErrDuplicateID)
				f.NotErrorIs(err, outbox.ErrUnknownOutcome)
			} else {
				f.NoError(err)
			}
		}
		f.Len(f.uuids(), len(ahead)+1+99)
		f.LessOrEqual(g.inserts.Load(), int32(1+2*7), "it is looked for by halves")
	})
}

// A failed connection fails those that wait, and what they are told is true.
func TestBatchAConnectionThatFailsInTheFlush(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for kind, rows := range map[faults.Kind]int{faults.Cut: 0, faults.CutAfter: 20} {
			g := f.gate()
			g.fault = func(n int32) faults.Fault {
				if n == 1 {
					return faults.Fault{Kind: kind}
				}
				return faults.Fault{}
			}
			c := f.crowd(f.publisher(g.DB, batch))
			ahead := c.behind(g)
			for i := range 20 {
				c.publish(t.Context(), fmt.Sprint(i))
			}
			f.waits(c.p, 20)
			g.open()
			for uuid, err := range c.end() {
				if slices.Contains(ahead, uuid) {
					f.NoError(err)
				} else {
					f.ErrorIs(err, outbox.ErrUnknownOutcome, kind)
				}
			}
			f.Len(f.uuids(), len(ahead)+rows)
			f.Equal(int32(1), g.inserts.Load(), "what may be there is not written again")
			f.NoError(c.p.Publish(topic, msg(t.Context(), "after")), "nothing is left over")
			f.Exec("DELETE FROM {outbox_state}")
			f.Exec("DELETE FROM {outbox}")
		}
	})
}

func TestBatchACancelledWaitLeavesOnlyABatchThatIsNotSent(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		g := f.gate()
		c := f.crowd(f.publisher(g.DB, batch, byUUID))
		id, err := f.NewID()
		f.NoError(err)
		sent, cancelSent := context.WithCancel(t.Context())
		unsent, cancelUnsent := context.WithCancel(t.Context())
		defer cancelSent()
		defer cancelUnsent()

		if f.DB.Name != testdb.SQLite { // where another batch may be on its way
			c.publish(t.Context(), "ahead 0")
			<-g.sent
		}
		c.publish(sent, id.String())
		<-g.sent
		c.publish(unsent, "unsent")
		f.waits(c.p, 1)
		c.inLine(1, "patient")
		cancelUnsent()
		f.waits(c.p, 1)
		cancelSent()
		f.Eventually(func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.errs) == 2 }, testoutbox.Patience, time.Millisecond)
		f.ErrorIs(c.errs["unsent"], context.Canceled)
		f.NotErrorIs(c.errs["unsent"], outbox.ErrUnknownOutcome)
		f.ErrorIs(c.errs[id.String()], outbox.ErrUnknownOutcome)
		f.ErrorIs(c.errs[id.String()], context.Canceled)
		g.open()
		f.NoError(c.end()["patient"])
		f.Contains(f.uuids(), "patient")
		f.Eventually(func() bool { return slices.Contains(f.uuids(), id.String()) }, testoutbox.Patience, time.Millisecond,
			"what was sent is written, though its caller has left")
		f.NotContains(f.uuids(), "unsent")

		f.ErrorIs(c.p.Publish(topic, msg(t.Context(), id.String())), outbox.ErrDuplicateID, "a retry by id is inserted if it is new")
		f.Equal(1, f.Number("SELECT COUNT(*) FROM {outbox} WHERE {uuid} = '%s'", id))
		f.ErrorIs(c.p.Publish(topic, msg(sent, "ended before")), context.Canceled)
	})
}

func TestBatchADeadlocksVictimIsRetriedOnceForAll(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		g := f.gate()
		g.fault = func(n int32) faults.Fault {
			if n == 1 {
				return faults.Fault{Kind: faults.Refuse, Err: faults.Deadlock(f.DB.Name)}
			}
			return faults.Fault{}
		}
		c := f.crowd(f.publisher(g.DB, batch))
		ahead := c.behind(g)
		for i := range 50 {
			c.publish(t.Context(), fmt.Sprint(i))
		}
		f.waits(c.p, 50)
		g.open()
		c.allSucceed()
		f.Equal(int32(2), g.inserts.Load())
		f.Len(f.uuids(), len(ahead)+50)
	})
}

// Hooks run in the goroutine of their call: one that panics, or is slow, or publishes, harms nobody else.
func TestBatchAHookThatPanicsOrIsSlowOrPublishes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		g := f.gate()
		slow := make(chan struct{})
		var p *outbox.Publisher
		p = f.publisher(g.DB, batch, func(c *outbox.PublisherConfig) {
			c.Hooks.OnPublish = func(e outbox.PublishEvent) {
				switch e.Topics[0] {
				case "panics":
					panic("boom")
				case "slow":
					<-slow
				case "publishes":
					f.NoError(p.Publish(topic, msg(t.Context(), "by the hook")))
				}
			}
		})
		c := f.crowd(p)
		ahead := c.behind(g)
		var recovered atomic.Value
		var others sync.WaitGroup
		for _, name := range []string{"panics", "slow", "publishes"} {
			others.Go(func() {
				defer func() {
					if reason := recover(); reason != nil {
						recovered.Store(reason)
					}
				}()
				f.NoError(p.Publish(name, msg(t.Context(), name)))
			})
		}
		f.waits(p, 3)
		c.inLine(3, "0")
		g.open()
		c.allSucceed()
		f.NoError(p.Publish(topic, msg(t.Context(), "1")))
		close(slow)
		others.Wait()
		f.Equal("boom", recovered.Load())
		f.ElementsMatch(append(ahead, "panics", "slow", "publishes", "0", "1", "by the hook"), f.uuids())
	})
}
