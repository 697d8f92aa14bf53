package log_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// logMemoryVariable makes the test program a reader of a consumer group whose memory is measured.
const logMemoryVariable = "OUTBOX_TEST_MEMORY_OF_A_GROUP"

type logMemoryJob struct {
	Backend, Driver, DSN, Schema string
	Messages, Bytes              int
	Budget                       int64 // of a Cursor's reads; 0 is a Subscriber at the defaults
}

// run reads the log to its end.
func (job logMemoryJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if job.Budget > 0 {
		return job.readPages(ctx, db)
	}
	return job.subscribe(ctx, db)
}

func (job logMemoryJob) subscribe(ctx context.Context, db *sql.DB) (err error) {
	s, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, ConsumerGroup: "group"}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	messages, err := s.Subscribe(ctx, "large")
	if err != nil {
		return err
	}
	for i := range job.Messages {
		msg, open := <-messages
		if !open || len(msg.Payload) != job.Bytes || msg.UUID != fmt.Sprint(i) {
			return fmt.Errorf("the message %d is not what comes", i)
		}
		msg.Ack()
	}
	return nil
}

func (job logMemoryJob) readPages(ctx context.Context, db *sql.DB) error {
	o, err := outbox.New(db, outbox.Config{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema}, nil)
	if err != nil {
		return err
	}
	c, err := seam.NewCursor[outbox.LogMessage](o, seam.CursorConfig{Group: "group", Topic: "large", MaxBytes: job.Budget})
	if err != nil {
		return err
	}
	for after := int64(0); after < int64(job.Messages); {
		messages, err := c.Read(ctx, after, 1000)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			return fmt.Errorf("the log ends at %d", after)
		}
		after = messages[len(messages)-1].Position
	}
	return nil
}

// A reader of the log holds no more than its budget of bytes, however many messages a read may return. With
// OUTBOX_TEST_MEMORY=full it is a consumer group at the defaults, and 3 GB of messages.
func TestLong_PeakMemoryOfALogGroup(t *testing.T) {
	full := os.Getenv("OUTBOX_TEST_MEMORY") == "full"
	messages, size, budget := 80, 1<<20, int64(4<<20)
	if full {
		messages, size, budget = 300, 10<<20, 0
	}
	forEach(t, func(t *testing.T, f *fixture) {
		o, payload := f.LogOutbox(), make([]byte, size)
		for i := range messages {
			_, err := o.Enqueue(f.Context(), f.DB.DB, outbox.Message{UUID: fmt.Sprint(i), Topic: "large", Payload: payload})
			f.NoError(err)
		}
		f.Stamp()
		peak := func(messages int) int64 {
			job := logMemoryJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.Config.Schema, messages, size, budget}
			peak := testprocess.PeakMemoryOf(t, logMemoryVariable, job)
			t.Logf("%d messages of %d MB: at most %d MB resident", messages, size>>20, peak>>20)
			return peak >> 20
		}
		if full {
			f.LessOrEqual(peak(messages), int64(400))
			return
		}
		f.Less(peak(messages)-peak(4), int64(messages-4), "the others take less room than they would together")
	})
}

// A read stops before the message with which it would pass its budget; one that is larger alone comes alone. Headers count.
func TestCursor_ReadsWithinItsBudget(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		o := f.LogOutbox()
		for i, size := range []int{10, 0, 10, 30, 10, 10, 5} {
			m := outbox.Message{UUID: fmt.Sprint(i), Topic: "orders", Payload: make([]byte, size)}
			if i == 4 {
				m.Headers = map[string]string{"a header": "that leaves no room for another"}
			}
			_, err := o.Enqueue(f.Context(), f.DB.DB, m)
			f.NoError(err)
		}
		f.Stamp()
		for _, topic := range []string{"orders", seam.AllTopics} {
			c, err := seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{Group: "group", Topic: topic, MaxBytes: 25})
			f.NoError(err)
			var reads []int
			for after := int64(0); after < 7; {
				messages, err := c.Read(f.Context(), after, 100)
				f.NoError(err)
				f.NotEmpty(messages)
				reads = append(reads, len(messages))
				after = messages[len(messages)-1].Position
			}
			f.Equal([]int{3, 1, 1, 2}, reads)
		}
		_, err := seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{Group: "group", MaxBytes: -1})
		f.RequireField(err, "CursorConfig.MaxBytes")
	})
}
