package console_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/kept"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// claimsVariable makes the test program a worker that tells how long its claims take. Its value is the job.
const claimsVariable = "OUTBOX_TEST_CONSOLE_CLAIMS"

type claimsJob struct{ Backend, Driver, DSN, Schema string }

// A worker claims and settles in a process of its own, as workers of `outbox console` do.
type worker struct {
	*testprocess.Process
	f     *fixture
	lines chan testprocess.Line
}

func (f *fixture) startWorker() *worker {
	w := &worker{f: f, lines: make(chan testprocess.Line)}
	w.Process = testprocess.Start(f.T, claimsVariable, claimsJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.DB.Schema}, w.lines)
	return w
}

// claims is how long each of n claims takes.
func (w *worker) claims(n int) (took []time.Duration) {
	w.f.T.Helper()
	_, err := fmt.Fprintln(w.Stdin, n)
	w.f.NoError(err)
	w.f.NoError(json.Unmarshal([]byte((<-w.lines).Text), &took))
	return took
}

// run makes as many claims as each line that it reads says, until there are none.
func (job claimsJob) run() (err error) {
	open := sql.Open
	if job.Backend == testdb.SQLite {
		open = kept.Open
	}
	db, err := open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	o, err := outbox.New(db, outbox.Config{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema}, nil)
	if err != nil {
		return err
	}
	for {
		var n int
		if _, err := fmt.Scanln(&n); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		took, err := claims(context.Background(), o, db, n)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(took); err != nil {
			return err
		}
	}
}

// claims publishes n messages, and claims and settles each.
func claims(ctx context.Context, o *outbox.Outbox, db *sql.DB, n int) (took []time.Duration, err error) {
	topic := outbox.TopicQuota{Topic: "claims"}
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{UUID: strconv.Itoa(i), Topic: topic.Topic}
	}
	for some := range slices.Chunk(messages, 1000) {
		if _, err := o.Enqueue(ctx, db, some...); err != nil {
			return nil, err
		}
	}
	for range messages {
		begun := time.Now()
		claimed, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{topic}, Limit: 1, Lease: time.Minute})
		took = append(took, time.Since(begun))
		if err != nil {
			return nil, err
		}
		if len(claimed) != 1 {
			return nil, fmt.Errorf("claimed %d messages instead of one", len(claimed))
		}
		if _, err := o.Settle(ctx, db, []outbox.Settlement{{Receipt: claimed[0].Receipt, Outcome: outbox.Ack}}); err != nil {
			return nil, err
		}
	}
	return took, nil
}
