package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// readVariable makes the test program a reader of a stream whose memory is measured.
const readVariable = "OUTBOX_TEST_MEMORY_OF_A_STREAM"

type readJob struct {
	Backend, Driver, DSN, Schema string
	Events                       int
}

func (j readJob) run() (err error) {
	db, err := sql.Open(j.Driver, j.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := eventstore.New(db, eventstore.Config{Dialect: testoutbox.Dialect(j.Backend), Schema: j.Schema}, nil)
	if err != nil {
		return err
	}
	n := 0
	for e, err := range store.Read(context.Background(), nil, "long", eventstore.ReadParams{Limit: j.Events}) {
		if err != nil {
			return err
		}
		if n++; e.Version != int64(n) {
			return fmt.Errorf("version %d comes as number %d", e.Version, n)
		}
	}
	if n != j.Events {
		return fmt.Errorf("%d events instead of %d", n, j.Events)
	}
	return nil
}

// Reading a stream takes the room of a page, however long the stream is: with OUTBOX_TEST_EVENTS=full, a million events.
func TestLong_PeakMemoryOfReadingAStream(t *testing.T) {
	const page, room = 1000, 20 // MB
	forEach(t, func(t *testing.T, f *fixture) {
		total := full("OUTBOX_TEST_EVENTS", 40*page, 1000*page)
		if f.DB.Name == testdb.SQLServer {
			total = 20 * page
		}
		batch := events(0, page)
		for i := range batch {
			batch[i].Payload = make([]byte, 1024)
		}
		for range total / page {
			f.append("long", eventstore.Any, batch...)
		}
		peak := func(n int) int64 {
			peak := testprocess.PeakMemoryOf(t, readVariable, readJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.DB.Schema, n})
			t.Logf("%d events of 1 KB: at most %d MB resident", n, peak>>20)
			return peak >> 20
		}
		f.Less(peak(total)-peak(5*page), int64(room), "the others take no more room")
	})
}
