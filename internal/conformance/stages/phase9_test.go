package stages_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// The list of the specification's phase 9, a test or more for each item.

func (f fixture) publisher(options ...func(*outbox.PublisherConfig)) *outbox.Publisher {
	f.T.Helper()
	config := outbox.PublisherConfig{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}
	for _, option := range options {
		option(&config)
	}
	p, err := outbox.NewPublisher(f.DB.DB, config, nil)
	f.NoError(err)
	f.T.Cleanup(func() { f.NoError(p.Close()) })
	return p
}

// "New Message Storage": a new message is stored with all that it has, once, and with the transaction that it is published in.
func TestPhase9_NewMessageStorage(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		id, err := f.NewID()
		f.NoError(err)
		added := outbox.Message{ID: id, UUID: "created", Topic: "products", StreamKey: "product 1", CorrelationID: "a request",
			Payload: []byte{0, 1, 255}, Headers: map[string]string{"price": "10"}}
		f.add(added)
		record := f.record(id)
		f.Equal(added, record.Message)
		f.Equal(outbox.Ready, record.Status)
		f.Equal(middleware.Stored, record.Stages)

		_, err = f.Outbox.Outbox.Enqueue(t.Context(), f.DB.DB, added)
		f.Error(err, "it is stored once")

		for rolledBack := range 2 {
			err := outbox.InTx(t.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				msg := message.NewMessageWithContext(ctx, fmt.Sprint("repriced ", rolledBack), nil)
				err := errors.Join(f.publisher().Publish("products", msg), affect(f.DB.DB, f.effects(), rolledBack, msg))
				if rolledBack == 1 {
					err = errors.Join(err, errStage)
				}
				return err
			})
			f.Equal(rolledBack == 1, errors.Is(err, errStage))
		}
		f.Equal(2, f.Count(outbox.Ready))
		f.Equal([]int{1, 0}, []int{f.affected(0), f.affected(1)})
	})
}

// "Partition Distribution": streams are spread over the workers that ask, no stream is with two, and what one leaves another
// takes.
func TestPhase9_PartitionDistribution(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		const streams, workers = 30, 3
		var messages []outbox.Message
		for i := range 2 * streams {
			messages = append(messages, outbox.Message{UUID: fmt.Sprint(i / streams), Topic: "products", StreamKey: fmt.Sprint(i % streams)})
		}
		f.add(messages...)
		with, held := map[string]int{}, make([][]outbox.Claimed, workers)
		for w := range workers {
			var err error
			held[w], err = f.Claim(t.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "products"}}, Limit: streams / workers})
			f.NoError(err)
			f.NotEmpty(held[w], "worker %d has a share", w)
			for _, c := range held[w] {
				other, taken := with[c.StreamKey]
				f.True(!taken || other == w, "stream %s is with %d and %d", c.StreamKey, other, w)
				with[c.StreamKey] = w
			}
		}
		leaves := with[held[0][0].StreamKey]
		var back []outbox.Settlement
		for _, c := range held[leaves] {
			back = append(back, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Release})
		}
		f.Empty(f.settle(back...))
		taken := f.claimAll("products", time.Minute)
		f.True(slices.ContainsFunc(taken, func(c outbox.Claimed) bool { return with[c.StreamKey] == leaves }))
		f.False(slices.ContainsFunc(taken, func(c outbox.Claimed) bool { w, held := with[c.StreamKey]; return held && w != leaves }))
	})
}

// "Granular Status Tracking": what has succeeded is known of a message that has partly failed, and the next attempt does only
// the rest.
func TestPhase9_GranularStatusTracking(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		suite.Need(t, f.DB, suite.UnescapesJSON)
		receptor, perspective, repaired := atomic.Int32{}, atomic.Int32{}, atomic.Bool{}
		id := f.add(outbox.Message{UUID: "1", Topic: "products"})[0]
		f.serve("products", f.handler(
			middleware.Stage{Bit: middleware.ReceptorProcessed, Run: func(*message.Message) error { receptor.Add(1); return nil }},
			middleware.Stage{Bit: middleware.PerspectiveProcessed, Run: func(*message.Message) error {
				if perspective.Add(1); !repaired.Load() {
					return errors.New("the views cannot be updated")
				}
				return nil
			}},
		), func(c *outbox.SubscriberConfig) { c.MaxAttempts = 2 })
		f.Becomes(outbox.Failed, 1)
		f.Equal([]int32{1, 2}, []int32{receptor.Load(), perspective.Load()})
		f.Equal(middleware.Stored|middleware.ReceptorProcessed, f.record(id).Stages)
		f.Contains(f.record(id).LastError, `stage "PerspectiveProcessed": the views cannot be updated`)

		repaired.Store(true)
		_, err := f.Requeue(f.T.Context(), outbox.RequeueParams{Topic: "products"})
		f.NoError(err)
		f.Becomes(outbox.Done, 1)
		f.Equal([]int32{1, 3}, []int32{receptor.Load(), perspective.Load()})
		f.Equal("Stored, ReceptorProcessed, PerspectiveProcessed", f.record(id).Stages.String())
	})
}

// "Stale Instance Cleanup": what a dead worker held is taken over, and what a live one holds is not.
func TestPhase9_StaleInstanceCleanup(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		f.Outbox.Outbox = f.prompt()
		f.Enqueue("orders", 1, 1)
		dead := f.claim("orders")
		f.expire()
		f.Enqueue("orders", 2, 1)
		live := f.claim("orders")
		f.Equal("2", live.UUID)

		n, err := f.ReapExpired(t.Context())
		f.NoError(err)
		f.Equal(1, n)
		over := f.claim("orders")
		f.Equal(dead.ID, over.ID)
		f.Equal(1, over.RetryCount)
		f.Equal([]outbox.WorkItemID{dead.Receipt.Seq}, f.settle(outbox.Settlement{Receipt: dead.Receipt}, outbox.Settlement{Receipt: live.Receipt}))
		f.Empty(f.settle(outbox.Settlement{Receipt: over.Receipt}))
		f.Equal(2, f.Count(outbox.Done))
	})
}

// "Stream Ordering": a stream's messages are handled one after the other by competing workers, also when one fails on the way;
// another stream is not held up.
func TestPhase9_StreamOrdering(t *testing.T) {
	forEach(t, func(_ *testing.T, f fixture) {
		for i := range 6 {
			f.add(outbox.Message{UUID: fmt.Sprint(i), Topic: "products", StreamKey: "product 1"}, outbox.Message{UUID: fmt.Sprint(i), Topic: "products", StreamKey: "product 2"})
		}
		type handled struct {
			key, uuid string
			attempt   int
		}
		order := make(chan handled, 100)
		for range 2 {
			f.serve("products", func(msg *message.Message) error {
				d := delivery(msg)
				order <- handled{d.StreamKey(), msg.UUID, d.Attempt()}
				if d.StreamKey() == "product 1" && msg.UUID == "3" && d.Attempt() == 1 {
					return errStage
				}
				return nil
			})
		}
		f.Becomes(outbox.Done, 12)
		byKey := map[string][]string{}
		for range len(order) {
			h := <-order
			byKey[h.key] = append(byKey[h.key], fmt.Sprintf("%s/%d", h.uuid, h.attempt))
		}
		f.Equal([]string{"0/1", "1/1", "2/1", "3/1", "3/2", "4/1", "5/1"}, byKey["product 1"])
		f.Equal([]string{"0/1", "1/1", "2/1", "3/1", "4/1", "5/1"}, byKey["product 2"])
	})
}

// "Strategies", Immediate: a message is in the table once Publish has returned.
func TestPhase9_StrategyImmediate(t *testing.T) {
	forEach(t, func(_ *testing.T, f fixture) {
		publisher := f.publisher()
		for n := range 3 {
			f.NoError(publisher.Publish("orders", message.NewMessage(fmt.Sprint(n), nil)))
			f.Equal(n+1, f.Count(outbox.Ready))
		}
	})
}

// "Strategies", Scoped: what is published in a scope is in the table when the scope ends, and not before.
func TestPhase9_StrategyScoped(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		publisher := f.publisher(func(c *outbox.PublisherConfig) { c.Flush = outbox.Scoped })
		f.NoError(outbox.InTx(t.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			for n := range 3 {
				f.NoError(publisher.Publish("orders", message.NewMessageWithContext(ctx, fmt.Sprint(n), nil)))
			}
			var written int
			f.NoError(tx.QueryRowContext(ctx, f.SQL("SELECT COUNT(*) FROM {outbox}")).Scan(&written))
			f.Zero(written)
			return nil
		}))
		f.Equal(3, f.Count(outbox.Ready))
	})
}

// "Strategies", Interval: callers within an interval share its flush, and each message is in the table once its Publish has returned.
func TestPhase9_StrategyInterval(t *testing.T) {
	shareFlushes(t, outbox.Interval)
}

// "Strategies", Batch: callers that wait at the same time share a flush, in the same way.
func TestPhase9_StrategyBatch(t *testing.T) {
	shareFlushes(t, outbox.Batch)
}

func shareFlushes(t *testing.T, strategy outbox.FlushStrategy) {
	t.Helper()
	forEach(t, func(_ *testing.T, f fixture) {
		const callers, each = 16, 5
		var shared atomic.Int64
		publisher := f.publisher(func(c *outbox.PublisherConfig) {
			c.Flush = strategy
			c.Hooks.OnPublish = func(e outbox.PublishEvent) {
				if e.Calls > 1 {
					shared.Add(1)
				}
			}
		})
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for n := range each {
					uuid := fmt.Sprint(caller, ".", n)
					if err := publisher.Publish("orders", message.NewMessage(uuid, nil)); err != nil {
						f.T.Errorf("publish %s: %v", uuid, err)
					}
				}
			})
		}
		all.Wait()
		f.Equal(callers*each, f.Count(outbox.Ready))
		f.Positive(shared.Load(), "no two calls shared a flush")
	})
}

// events reads a stream of the event store.
func (f fixture) events(stream string) (events []eventstore.Event) {
	f.T.Helper()
	store, err := eventstore.New(f.DB.DB, eventstore.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
	f.NoError(err)
	for e, err := range store.Read(f.T.Context(), nil, stream, eventstore.ReadParams{}) {
		f.NoError(err)
		events = append(events, e)
	}
	return events
}

func marked(c *outbox.PublisherConfig) {
	c.EventStream = func(_ string, msg *message.Message) string { return msg.Metadata.Get("event of") }
}

func event(ctx context.Context, uuid, stream string) *message.Message {
	msg := message.NewMessageWithContext(ctx, uuid, []byte(uuid))
	msg.Metadata.Set("event of", stream)
	return msg
}

// "Event Store Integration": an event is stored and queued by one call, or neither, with the next version of its stream.
func TestPhase9_EventStoreIntegration(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		publisher := f.publisher(marked)
		f.NoError(publisher.Publish("products", event(t.Context(), "created", "product 1"), event(t.Context(), "created", "product 2")))
		f.NoError(publisher.Publish("products", event(t.Context(), "repriced", "product 1")))
		f.ErrorIs(outbox.InTx(t.Context(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
			return errors.Join(publisher.Publish("products", event(ctx, "withdrawn", "product 1")), errStage)
		}), errStage)
		f.Equal(3, f.Count(outbox.Ready))
		first, second := f.events("product 1"), f.events("product 2")
		f.Len(first, 2)
		f.Len(second, 1)
		for i, uuid := range []string{"created", "repriced"} {
			f.Equal(int64(i+1), first[i].Version)
			f.Equal(uuid, string(first[i].Payload))
		}
		f.Equal(int64(1), second[0].Version)
	})
}

// "IsEvent Serialization": what is an event is said by a flag, which is the stream; other messages are only queued.
func TestPhase9_EventFlag(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		f.NoError(f.publisher(marked).Publish("products", event(t.Context(), "PlaceOrderEvent", ""), event(t.Context(), "created", "product 1")))
		f.NoError(f.publisher().Publish("products", event(t.Context(), "repriced", "product 1")))
		f.Equal(3, f.Count(outbox.Ready))
		events := f.events("product 1")
		f.Len(events, 1)
		f.Equal("created", string(events[0].Payload))
		var stages []string
		for _, c := range f.claimAll("products", time.Minute) {
			stages = append(stages, f.shown(c))
		}
		f.ElementsMatch([]string{"Stored", "Stored, EventStored", "Stored"}, stages)
	})
}
