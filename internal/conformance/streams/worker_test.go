package streams_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// streamWorkerVariable makes the test program a worker of TestStream_KilledWorkers. Its value is the job.
const streamWorkerVariable = "OUTBOX_TEST_STREAM_WORKER"

type streamJob struct {
	Backend, Driver, DSN string
	Schema, Table        string // of the outbox
	Folder               string // of the story, and of what is mended
	Number               int    // of this worker, from 1
	Seed                 uint64
	Lease                time.Duration
	Skips                bool // what fails for good
}

// streamRun is MaxStreamRun.
const streamRun = 8

// What a worker tells, a line each on its standard output.
const (
	streamHandled = "handled" // a handler is done, and has not acked yet
	streamFailed  = "failed"  // a message has failed for good, in the table
)

// A streamFate is what the seed has in store for a message.
type streamFate struct {
	failures int  // before it succeeds
	broken   bool // it fails for good
	curable  bool // but only until it is mended
}

func streamFateOf(seed uint64, stream, n int) (f streamFate) {
	random := rand.New(rand.NewPCG(seed, uint64(stream)<<32|uint64(n))) //nolint:gosec // neither is negative
	switch x := random.IntN(100); {
	case x < 2:
		f.broken, f.curable = true, x == 0
	case x < 15:
		f.failures = 1 + random.IntN(3)
	}
	return f
}

func storyIn(folder string) string { return filepath.Join(folder, "story") }

// mendedIn is a file that is there once a message has been mended.
func mendedIn(folder string, stream, n int) string {
	return filepath.Join(folder, fmt.Sprintf("mended-%d-%d", stream, n))
}

// run is the worker's process.
func (job streamJob) run() (err error) {
	db, err := suite.OpenWorker(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	story, err := openStory(storyIn(job.Folder))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(event string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, event)
	}
	config := outbox.SubscriberConfig{
		Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, Table: job.Table,
		MaxInFlight: 20, MaxStreamRun: streamRun, LeaseDuration: job.Lease, MaxAttempts: 20, MaxPollInterval: 50 * time.Millisecond,
		Backoff: func(int) time.Duration { return time.Millisecond },
		Hooks: outbox.Hooks{OnSettle: func(e outbox.SettleEvent) {
			if e.Outcomes[outbox.Fail] > 0 {
				tell(streamFailed)
			}
		}},
	}
	if job.Skips {
		config.OnStreamFailure = outbox.DeadLetter
	}
	return suite.WorkUntilStdinEnds(db, config, false, func(msg *message.Message) {
		if err := job.handle(story, msg); err != nil {
			suite.DeliveryOf(msg).SetErr(err)
			msg.Nack()
			return
		}
		tell(streamHandled)
		msg.Ack()
	})
}

// handle takes a moment, in which the worker may be killed, and ends as the seed says. All of it is in the story.
func (job streamJob) handle(story *story, msg *message.Message) error {
	delivery := suite.DeliveryOf(msg)
	stream, n := streamMessage(delivery.StreamKey(), msg.UUID)
	note := func(event storyEvent) {
		if err := story.tell(job.Number, event, stream, n); err != nil {
			fmt.Fprintln(os.Stderr, "stream worker:", err)
			os.Exit(1)
		}
	}
	note(storyBegins)
	moment := time.NewTimer(rand.N(10 * time.Millisecond))
	defer moment.Stop()
	select {
	case <-msg.Context().Done():
		note(storyStops)
		return context.Cause(msg.Context())
	case <-moment.C:
	}
	fate := streamFateOf(job.Seed, stream, n)
	switch {
	case fate.broken && !job.isMended(stream, n):
		note(storyGivesUp)
		return outbox.Permanent(errors.New("it is broken"))
	case delivery.Attempt() <= fate.failures:
		note(storyFails)
		return errors.New("it was its turn to fail")
	}
	note(storySucceeds)
	return nil
}

func (job streamJob) isMended(stream, n int) bool {
	_, err := os.Stat(mendedIn(job.Folder, stream, n))
	return err == nil
}

// streamMessage is which message it is of which stream, from 0.
func streamMessage(key, uuid string) (stream, n int) {
	_, err := fmt.Sscanf(key, "stream %d", &stream)
	if err == nil {
		n, err = strconv.Atoi(uuid)
	}
	if err != nil {
		panic(err) // the test has published something else
	}
	return stream, n
}
