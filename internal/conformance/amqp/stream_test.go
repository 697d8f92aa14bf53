package amqp_test

import (
	"strconv"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testforwarder"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// Forwarders are killed between the broker's confirmation and the acknowledgement, and their connections cut in the middle of a
// batch. Nothing is lost, and in the queue no message comes before an earlier one of its stream. What is published again is there
// twice, each copy in the order of the others that came with it: see testforwarder.Order.
func TestLong_KilledForwardersOfStreams(t *testing.T) {
	seed := testprocess.Seed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		proxy := testbroker.NewProxy(t, r.broker.url)
		plan := testforwarder.NewPlan()
		soak := &testforwarder.Soak{Outbox: r.Outbox, Plan: plan, Seed: seed, Job: testforwarder.For(r.Outbox, r.queue, proxy.URL)}
		begun := 0
		soak.Cut = func() bool {
			if proxy.Cuts() < begun {
				return false
			}
			begun++
			proxy.CutAfter(plan.Batch * 100) // in the middle of a batch, about
			return true
		}
		started := time.Now()
		soak.Run()
		took := time.Since(started)
		r.Equal(plan.Cuts, proxy.Cuts())
		var order testforwarder.Order
		r.broker.drainTo(r.queue, func(d amqp091.Delivery) {
			n, err := strconv.Atoi(string(d.Body))
			r.NoError(err)
			order.Arrive(r.header(d, outbox.HeaderStreamKey), n, r.header(d, testforwarder.HeaderCall))
		})
		soak.Check(&order, took)
	})
}

func (r *relay) header(d amqp091.Delivery, name string) string {
	r.T.Helper()
	value, ok := d.Headers[name].(string)
	r.True(ok, name)
	return value
}
