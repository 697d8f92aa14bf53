package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// logMemoryVariable makes the test program a reader of a consumer group whose memory is measured.
const logMemoryVariable = "OUTBOX_TEST_MEMORY_OF_A_GROUP"

type logMemoryJob struct {
	Backend, Driver, DSN, Schema string
	Messages, Bytes              int
}

// run reads the log to its end, at the defaults.
func (job logMemoryJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: dialect(job.Backend), Schema: job.Schema, ConsumerGroup: "group"}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	messages, err := s.Subscribe(context.Background(), "large")
	if err != nil {
		return err
	}
	timeout := time.NewTimer(10 * time.Minute)
	defer timeout.Stop()
	for i := range job.Messages {
		select {
		case msg := <-messages:
			if len(msg.Payload) != job.Bytes || msg.UUID != fmt.Sprint(i) {
				return fmt.Errorf("the message %s of %d bytes instead of %d", msg.UUID, len(msg.Payload), i)
			}
			msg.Ack()
		case <-timeout.C:
			return errors.New("the log does not end")
		}
	}
	return nil
}

// A reader of the log holds no more than its budget of bytes, however many messages a read may return.
func TestPeakMemory_OfALogGroup(t *testing.T) {
	messages, size := 80, 4<<20
	if os.Getenv("OUTBOX_TEST_FULL") != "" {
		messages, size = 300, 10<<20
	}
	forEach(t, func(t *testing.T, f *fixture) {
		o, payload := f.logOutbox(), make([]byte, size)
		for i := range messages {
			_, err := o.Enqueue(f.ctx(), f.db.DB, outbox.Message{UUID: fmt.Sprint(i), Topic: "large", Payload: payload})
			f.NoError(err)
		}
		f.stamp()
		peak := testprocess.PeakMemoryOf(t, logMemoryVariable, logMemoryJob{f.db.Name, f.db.DriverName, f.db.DSN, f.config.Schema, messages, size})
		t.Logf("%d messages of %d MB: at most %d MB resident", messages, size>>20, peak>>20)
		limit := int64(400)
		if os.Getenv("OUTBOX_TEST_FULL") == "" {
			limit = 300 // less than the messages of one read together
		}
		f.LessOrEqual(peak>>20, limit)
	})
}

// A read stops before the message with which it would pass its budget; one that is larger alone comes alone. Headers count.
func TestCursor_ReadsWithinItsBudget(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		o := f.logOutbox()
		for i, size := range []int{10, 0, 10, 30, 10, 10, 5} {
			m := outbox.Message{UUID: fmt.Sprint(i), Topic: "orders", Payload: make([]byte, size)}
			if i == 4 {
				m.Headers = map[string]string{"a header": "that leaves no room for another"}
			}
			_, err := o.Enqueue(f.ctx(), f.db.DB, m)
			f.NoError(err)
		}
		f.stamp()
		for _, topic := range []string{"orders", outbox.AllTopics} {
			c, err := f.outbox.Cursor(outbox.CursorConfig{Group: "group", Topic: topic, MaxBytes: 25})
			f.NoError(err)
			var reads []int
			for after := int64(0); after < 7; {
				messages, err := c.Read(f.ctx(), after, 100)
				f.NoError(err)
				f.NotEmpty(messages)
				reads = append(reads, len(messages))
				after = messages[len(messages)-1].Position
			}
			f.Equal([]int{3, 1, 1, 2}, reads)
		}
		for field, config := range map[string]outbox.CursorConfig{
			"CursorConfig.MaxBytes": {Group: "group", MaxBytes: -1}, "CursorConfig.Version": {Group: "group", Version: -1}} {
			_, err := f.outbox.Cursor(config)
			f.requireField(err, field)
		}
	})
}
