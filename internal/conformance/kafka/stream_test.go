package kafka_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testforwarder"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// Forwarders are killed between the broker's confirmation and the acknowledgement, and their connections cut. Nothing is lost,
// all of a stream is in one partition under its key, and there no message comes before an earlier one of its stream. What is
// published again is there twice, each copy in the order of the others that came with it: see testforwarder.Order.
func TestLong_KilledForwardersOfStreams(t *testing.T) {
	seed := testprocess.Seed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		l := &line{}
		s := newFake(t, kfake.NumBrokers(2), kfake.ListenFn(l.listen))
		topic := s.createTopic(4)
		soak := &testforwarder.Soak{Outbox: o, Plan: testforwarder.NewPlan(), Seed: seed, Job: testforwarder.For(o, topic, strings.Join(s.brokers, ","))}
		soak.Cut = func() bool {
			l.cutFor(time.Second) // longer than a publisher tries
			return true
		}
		started := time.Now()
		soak.Run()
		took := time.Since(started)
		var order testforwarder.Order
		partition := map[string]int32{}
		for _, record := range s.read(topic, soak.Streams*soak.Each) {
			key := string(record.Key)
			s.Equal(header(record, outbox.HeaderStreamKey), key)
			if _, known := partition[key]; !known {
				partition[key] = record.Partition
			}
			s.Equal(partition[key], record.Partition, "the stream %s should be in one partition", key)
			n, err := strconv.Atoi(string(record.Value))
			s.NoError(err)
			order.Arrive(key, n, header(record, testforwarder.HeaderCall))
		}
		soak.Check(&order, took)
	})
}
