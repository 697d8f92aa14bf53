package queue_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// publishMemoryVariable makes the test program publish, so that its memory can be measured.
const publishMemoryVariable = "OUTBOX_TEST_PUBLISH_MEMORY"

type publishMemoryJob struct {
	Backend, Driver, DSN string
	Schema               string
	Headers              int // each of 1 MB
}

func (j publishMemoryJob) run() error {
	db, err := sql.Open(j.Driver, j.DSN)
	if err != nil {
		return err
	}
	o, err := outbox.New(db, outbox.Config{Dialect: testoutbox.Dialect(j.Backend), Schema: j.Schema}, nil)
	if err != nil {
		return err
	}
	messages := make([]outbox.Message, j.Headers)
	for i := range messages {
		messages[i] = outbox.Message{Topic: "orders", Headers: map[string]string{"h": strings.Repeat(fmt.Sprint(i%10), 1<<20)}}
	}
	if _, err := o.Enqueue(context.Background(), db, messages...); err != nil {
		return err
	}
	return db.Close()
}

// Publishing takes three times what is published at most, the caller's own included: 1,000 headers of 1 MB are 3 GB.
func TestLong_PeakMemoryOfPublishing(t *testing.T) {
	headers, program := 30, int64(150)
	if os.Getenv("OUTBOX_TEST_MEMORY") == "full" {
		headers, program = 1000, 0
	}
	forEach(t, func(t *testing.T, f *fixture) {
		peak := testprocess.PeakMemoryOf(t, publishMemoryVariable, publishMemoryJob{
			f.DB.Name, f.DB.DriverName, f.DB.DSN, f.Config.Schema, headers})
		t.Logf("%d headers of 1 MB: %d MB resident at the peak", headers, peak>>20)
		f.Equal(headers, f.Count())
		f.LessOrEqual(peak>>20, program+int64(3*headers))
		f.Clear()
	})
}
