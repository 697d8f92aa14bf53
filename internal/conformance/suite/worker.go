package suite

import (
	"context"
	"database/sql"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// OpenWorker opens the database as a worker's process uses it.
func OpenWorker(driver, dsn string) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	return db, nil
}

// WorkUntilStdinEnds handles the messages of the topic "work" until the test closes the process's standard input: concurrently, or one
// at a time.
func WorkUntilStdinEnds(db *sql.DB, config outbox.SubscriberConfig, oneAtATime bool, handle func(*message.Message)) error {
	sub, err := outbox.NewSubscriber(db, config, nil)
	if err != nil {
		return err
	}
	messages, err := sub.Subscribe(context.Background(), "work")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the end of the job, however it comes
		_ = sub.Close()                      // whether all is settled is for the test to see
	}()
	var handlers sync.WaitGroup
	for msg := range messages {
		handlers.Go(func() { handle(msg) })
		if oneAtATime {
			handlers.Wait()
		}
	}
	handlers.Wait()
	return sub.Close()
}

// Median sorts some times and returns the one in the middle.
func Median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2].Round(10 * time.Microsecond)
}
