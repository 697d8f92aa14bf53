package subscriber_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// memoryWorkerVariable makes the test program a worker whose memory is measured. Its value is the job.
const memoryWorkerVariable = "OUTBOX_TEST_MEMORY_WORKER"

// memoryPlan is small in the normal suite; OUTBOX_TEST_MEMORY=full is a Subscriber at its defaults.
type memoryPlan struct {
	Messages, Size int
	Budget         int64 // MaxInFlightBytes; 0 is its default
	peak           int64 // that is allowed
}

func newMemoryPlan() memoryPlan {
	if os.Getenv("OUTBOX_TEST_MEMORY") == "full" {
		return memoryPlan{300, 10 << 20, 0, 400 << 20}
	}
	return memoryPlan{40, 4 << 20, 16 << 20, 170 << 20}
}

type memoryJob struct {
	Backend, Driver, DSN, Schema, Table string
	Plan                                memoryPlan
}

// A Subscriber holds no more of large messages than its budget, and what the driver makes of it, however many wait.
func TestLong_PeakMemory(t *testing.T) {
	plan := newMemoryPlan()
	forEach(t, func(t *testing.T, f *fixture) {
		payload := make([]byte, plan.Size)
		for range plan.Messages {
			f.Enqueue(outbox.Message{Topic: "large", Payload: payload})
		}
		peak := testprocess.PeakMemoryOf(t, memoryWorkerVariable,
			memoryJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.Config.Schema, f.Config.Table, plan})
		t.Logf("%d messages of %d MB: peak of the resident memory %d MB", plan.Messages, plan.Size>>20, peak>>20)
		f.Zero(f.Number("SELECT COUNT(*) FROM {all} WHERE {status} <> %d", outbox.Done))
		if f.DB.Name == testdb.SQLite {
			plan.peak += 130 << 20 // an update rewrites the whole row, in the process
		}
		f.LessOrEqual(peak, plan.peak)
	})
}

// run is the worker's process: it acks all messages, each after a while.
func (job memoryJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	sub, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, Table: job.Table, MaxInFlightBytes: job.Plan.Budget,
	}, nil)
	if err != nil {
		return err
	}
	messages, err := sub.Subscribe(context.Background(), "large")
	if err != nil {
		return err
	}
	var handlers sync.WaitGroup
	for range job.Plan.Messages {
		msg := <-messages
		handlers.Go(func() {
			<-time.After(50 * time.Millisecond)
			msg.Ack()
		})
	}
	handlers.Wait()
	return sub.Close()
}

// A claim ends before the first message that does not fit; the first of all is taken whatever its size.
func TestClaimKeepsToItsBytes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		large, small := make([]byte, 1000), make([]byte, 100)
		f.Enqueue(outbox.Message{Topic: "a", Payload: small}, outbox.Message{Topic: "a", Payload: small},
			outbox.Message{Topic: "a", Payload: large}, outbox.Message{Topic: "a", Payload: small},
			outbox.Message{Topic: "b", Payload: small, Headers: map[string]string{"header": string(large)}}, outbox.Message{Topic: "b", Payload: small})
		claim := func(bytes int64, topics ...string) (sizes []int) {
			for _, c := range f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas(topics...), Bytes: bytes}) {
				sizes = append(sizes, len(c.Payload))
			}
			return sizes
		}
		f.Equal([]int{100, 100}, claim(1100, "a"))
		f.Equal([]int{1000}, claim(500, "a", "b"), "the first is larger, and then nothing fits")
		f.Equal([]int{100}, claim(1000, "a", "b"), "headers count")
		f.Equal([]int{100, 100}, claim(0, "a", "b"), "no limit")
		_, err := f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("a"), Bytes: -1})
		f.RequireField(err, "ClaimParams.Bytes")
	})
}

// Large messages of a topic whose handlers are stuck leave room for another topic.
func TestBytesInFlightStarveNoTopic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		sub := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlightBytes = 1000 })
		for range 20 {
			f.Enqueue(outbox.Message{Topic: "stuck", Payload: make([]byte, 100)})
		}
		other, stuck := f.Subscribe(sub, "other"), f.Subscribe(sub, "stuck")
		held := f.ReceiveN(stuck, 5)
		ids := f.EnqueueN("other", 5)
		for range ids {
			f.Receive(other).Ack()
		}
		f.Settles(ids)
		f.LessOrEqual(f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 1"), int64(10))
		huge := f.Enqueue(outbox.Message{Topic: "huge", Payload: make([]byte, 5000)})
		suite.AckAll(held)
		go func() {
			for msg := range stuck { // no longer; it ends with the subscriber
				msg.Ack()
			}
		}()
		f.Receive(f.Subscribe(sub, "huge")).Ack()
		f.Settles(huge)
	})
}
