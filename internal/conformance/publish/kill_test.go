package publish

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/kept"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// killVariable makes the test program a publisher that is killed. Its value is the job.
const killVariable = "OUTBOX_TEST_PUBLISHER_KILLED"

type killJob struct{ Backend, Driver, DSN, Schema string }

// What a killed process has told its callers is there.
func TestBatchOfAKilledProcessHasWhatItAcknowledged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		lines := make(chan testprocess.Line, 1000)
		p := testprocess.Start(t, killVariable, killJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.DB.Schema}, lines)
		var acknowledged []string
		for line := range lines {
			if line.Text == "" {
				break
			}
			if acknowledged = append(acknowledged, line.Text); len(acknowledged) == 200 {
				f.NoError(p.Kill())
			}
		}
		f.GreaterOrEqual(len(acknowledged), 200, "it was killed in the middle")
		f.Subset(f.uuids(), acknowledged)
	})
}

// run publishes until it is killed, or its parent is gone, and prints the UUID of each call that has returned nil.
func (job killJob) run() (err error) {
	open := sql.Open
	if job.Backend == testdb.SQLite {
		open = kept.Open
	}
	db, err := open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, Flush: outbox.Batch}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	ctx, failed := context.WithCancelCause(context.Background())
	defer failed(nil)
	var all sync.WaitGroup
	for caller := range 16 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				uuid := fmt.Sprint(caller, "-", i)
				if err := p.Publish(topic, msg(ctx, uuid)); err != nil {
					failed(err)
					return
				}
				fmt.Println(uuid)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
