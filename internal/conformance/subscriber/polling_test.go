package subscriber_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

func TestOBX116_PollingSlowsDownWhileThereIsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		polls := make(chan time.Time, 1000)
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			select {
			case polls <- time.Now():
			default:
			}
			return nil
		}})
		s := f.SubscriberOn(pool, nil, func(c *outbox.SubscriberConfig) {
			c.PollInterval, c.MaxPollInterval, c.LeaseDuration = 2*time.Millisecond, 64*time.Millisecond, time.Hour
		})
		f.Subscribe(s, t.Name()) // a topic that no other test wakes
		var last time.Time
		var gaps []time.Duration
		for range 20 { // the first few with what a worker says of itself
			now, _ := suite.Take(f.T, polls, "a poll")
			if !last.IsZero() {
				gaps = append(gaps, now.Sub(last))
			}
			last = now
		}
		var total time.Duration
		for _, gap := range gaps {
			total += gap
		}
		f.Greater(total, 300*time.Millisecond, "2, 4, 8 … 64, 64 … ms: %v", gaps)
		f.NoError(s.Close())
	})
}

// A claim that begins where the last one ended does not find what a long transaction has committed since. If it finds nothing, the
// next one begins at the beginning, and it comes soon, however rarely the Subscriber polls.
func TestTrap_AWakeUpFindsWhatIsCommittedLate(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.PollInterval, c.MaxPollInterval = time.Hour, time.Hour })
		messages := f.Subscribe(s, "orders")
		for range 3 {
			f.EnqueueN("orders", 1)
			f.Receive(messages).Ack()
			f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := f.NewOutbox(f.DB.DB).Enqueue(ctx, tx, outbox.Message{Topic: "orders"}); err != nil {
					return err
				}
				f.ExecStatesOn(tx, "UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {status} = 0") // it began long ago
				return nil
			}))
			outbox.Wake("orders")
			f.Receive(messages).Ack()
		}
	})
}

func TestOBX116_AWakeUpEndsTheWait(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		wakeups := make(chan string)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.PollInterval, c.MaxPollInterval, c.Wakeups = time.Hour, time.Hour, wakeups
		})
		topic := "topic of " + f.Config.Schema + t.Name()[len(t.Name())-8:] // wake-ups are of the whole process
		messages := f.Subscribe(s, topic)
		other := f.NewOutbox(f.DB.DB)

		f.EnqueueN(topic, 1) // an enqueue on a pool wakes
		f.Receive(messages).Ack()

		p := f.Publisher(f.DB.DB)
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error { // InTx wakes once it has committed
			msg := message.NewMessage("in tx", nil)
			msg.SetContext(ctx)
			return p.Publish(topic, msg)
		}))
		f.Receive(messages).Ack()

		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		_, err = other.Enqueue(f.Context(), tx, outbox.Message{Topic: topic})
		f.NoError(err)
		f.NoError(tx.Commit())
		outbox.Wake(topic) // after a commit of one's own
		f.Receive(messages).Ack()

		// What comes from other processes comes through the channel.
		f.Eventually(func() bool { return len(f.Rows("{status} = 2")) == 3 }, suite.Patience, 2*time.Millisecond)
		f.ExecStates("UPDATE {outbox_state} SET {status} = 0, {processed_at} = NULL, {worker_id} = NULL")
		wakeups <- "another topic"
		wakeups <- topic
		for _, msg := range f.ReceiveN(messages, 3) {
			msg.Ack()
		}
		close(wakeups) // leaves polling as it is
		f.EnqueueN(topic, 1)
		f.Receive(messages).Ack()
	})
}
