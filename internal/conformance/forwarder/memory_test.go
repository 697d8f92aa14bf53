package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// memoryVariable makes the test program a forwarder whose memory is measured. Its value is the job.
const memoryVariable = "OUTBOX_TEST_FORWARDER_MEMORY"

type memoryJob struct {
	Backend, Driver, DSN, Schema string
	Messages                     int
	Budget                       int64 // MaxInFlightBytes and four times BatchBytes; 0 is the defaults
	Pause                        time.Duration
}

// memoryPlan is small in make test-long; OUTBOX_TEST_MEMORY=full is a Forwarder at its defaults.
type memoryPlan struct {
	name           string
	messages, size int
	budget, peak   int64
	pause          time.Duration // of the publisher, a message
}

func memoryPlans() []memoryPlan {
	if os.Getenv("OUTBOX_TEST_MEMORY") == "full" {
		return []memoryPlan{
			{"large", 300, 10 << 20, 0, 400 << 20, 0},
			{"many behind a slow publisher", 2000, 1 << 20, 0, 400 << 20, 10 * time.Millisecond},
		}
	}
	return []memoryPlan{
		{"large", 30, 4 << 20, 16 << 20, 170 << 20, 0},
		{"many behind a slow publisher", 120, 1 << 20, 16 << 20, 170 << 20, time.Millisecond},
	}
}

// A Forwarder holds no more of large messages than its Subscriber's budget, and what the driver makes of it, however many
// wait and however slow the broker is.
func TestLong_PeakMemoryOfAForwarder(t *testing.T) {
	for _, plan := range memoryPlans() {
		t.Run(plan.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				payload := make([]byte, plan.size)
				for range plan.messages {
					_, err := f.Outbox.Outbox.Enqueue(t.Context(), f.DB.DB, outbox.Message{Topic: "orders", Payload: payload})
					f.NoError(err)
				}
				peak := testprocess.PeakMemoryOf(t, memoryVariable,
					memoryJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.DB.Schema, plan.messages, plan.budget, plan.pause})
				t.Logf("%d messages of %d MB: peak of the resident memory %d MB", plan.messages, plan.size>>20, peak>>20)
				f.Equal(plan.messages, f.Count(outbox.Done))
				allowed := plan.peak
				if f.DB.Name == testdb.SQLite {
					allowed += 130 << 20 // an update rewrites the whole row, in the process
				}
				f.LessOrEqual(peak, allowed)
			})
		})
	}
}

// run is the forwarder's process.
func (job memoryJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Minute)
	defer stop()
	slow := &slowPublisher{pause: job.Pause}
	var settled atomic.Int64
	fw, err := forwarder.New(db, slow, forwarder.Config{
		Topics: []string{"orders"}, BatchBytes: job.Budget / 4,
		Subscriber: outbox.SubscriberConfig{
			Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, MaxInFlightBytes: job.Budget,
			Hooks: outbox.Hooks{OnSettle: func(e outbox.SettleEvent) {
				if settled.Add(int64(e.Outcomes[outbox.Ack]-e.Refused)) >= int64(job.Messages) {
					stop()
				}
			}},
		},
	}, nil)
	if err != nil {
		return err
	}
	if err := fw.Run(ctx); err != nil {
		return err
	}
	if n := settled.Load(); n != int64(job.Messages) {
		return fmt.Errorf("%d of %d messages were forwarded", n, job.Messages)
	}
	return nil
}

// A slowPublisher takes its time over each message.
type slowPublisher struct{ pause time.Duration }

func (p *slowPublisher) Publish(_ string, messages ...*message.Message) error {
	<-time.After(time.Duration(len(messages)) * p.pause)
	return nil
}

func (p *slowPublisher) Close() error { return nil }
