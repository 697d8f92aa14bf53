package amqp_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// forwarderVariable makes the test program a forwarder. Its value is the job.
const forwarderVariable = "OUTBOX_TEST_FORWARDER"

type forwarderJob struct {
	Backend, Driver, DSN, Schema string
	URL, Queue                   string
	Lease                        time.Duration
	Batch                        int
	Hang                         bool // after the first confirmation, before the acknowledgement
}

// What the process tells, a line each.
const (
	toldConfirmed = "confirmed" // the broker has a batch, and nothing of it is acknowledged
	toldSettled   = "settled"   // something is acknowledged
)

// lease is short, but long enough that only the dead lose theirs, however busy the machine is.
const lease = 10 * time.Second

// A process is a forwarder with what it tells.
type process struct {
	*testprocess.Process
	lines chan testprocess.Line
}

func (r *relay) startProcess(hang bool) process {
	r.T.Helper()
	lines := make(chan testprocess.Line, 100_000) // not all of them are listened to
	return process{testprocess.Start(r.T, forwarderVariable,
		forwarderJob{r.DB.Name, r.DB.DriverName, r.DB.DSN, r.DB.Schema, r.broker.url, r.queue, lease, newRelayPlan().batch(), hang}, lines), lines}
}

// next waits for some news.
func (r *relay) next(p process) string {
	r.T.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line := <-p.lines:
		r.NotEmpty(line.Text, "the forwarder's process has ended")
		return line.Text
	case <-timer.C:
		r.FailNow("the forwarder's process is silent")
		return ""
	}
}

// kill kills it as nothing can be caught, and answers how many messages the table says it held: those under tokens that
// no process had that was killed before.
func (r *relay) kill(p process, dead map[string]bool) (held int) {
	r.T.Helper()
	r.NoError(p.Kill())
	for line := range p.lines {
		if line.Text == "" {
			break
		}
	}
	rows, err := r.DB.QueryContext(r.T.Context(), r.SQL("SELECT {owner_token}, COUNT(*) FROM {all} WHERE {status} = 1 GROUP BY {owner_token}"))
	r.NoError(err)
	defer func() { r.NoError(rows.Close()) }()
	for rows.Next() {
		var owner []byte
		var n int
		r.NoError(rows.Scan(&owner, &n))
		if !dead[string(owner)] {
			dead[string(owner)] = true
			held += n
		}
	}
	r.NoError(rows.Err())
	return held
}

// The broker has confirmed a batch, of which the outbox does not hear: it is published again, by the next.
func TestLong_AProcessKilledBetweenConfirmAndAckLosesNothing(t *testing.T) {
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		const n = 100
		r.Enqueue(r.queue, 0, n)
		hanging := r.startProcess(true)
		r.Equal(toldConfirmed, r.next(hanging))
		r.Positive(r.kill(hanging, map[string]bool{}))
		r.Zero(r.Count(outbox.Done))
		confirmed := r.broker.waiting(r.queue)
		r.Positive(confirmed)

		r.startProcess(false)
		r.Becomes(outbox.Done, n)
		r.Equal(1, r.Attempts())
		r.Equal(confirmed, r.broker.allArrived(r.broker.drain(r.queue), n), "what was confirmed comes again, with the same id")
	})
}

// Forwarders are killed while they hold messages: nothing is lost, and each kill costs a message an attempt at most.
func TestLong_KilledForwardersLoseNothing(t *testing.T) {
	plan := newRelayPlan()
	seed := rand.Uint64()
	forEachRelay(t, testbroker.URL, func(t *testing.T, r *relay) {
		random := rand.New(rand.NewPCG(seed, 0))
		r.Enqueue(r.queue, 0, plan.messages)
		started := time.Now()
		p := r.startProcess(false)
		var held []int
		dead, settled, total := map[string]bool{}, 0, plan.messages
		for done := 0; done < total || len(held) < plan.kills; {
			if done == total { // quicker than the kills: there is more to do
				const more = 500
				r.Enqueue(r.queue, total, more)
				total += more
			}
			if r.next(p) == toldSettled {
				settled++
				done = r.Count(outbox.Done)
			}
			// Not before it has done something, and when it holds more.
			if len(held) < plan.kills && settled > 0 && done > plan.messages*len(held)/(plan.kills+1) && random.IntN(2) == 0 {
				if n := r.kill(p, dead); n > 0 {
					held = append(held, n)
				}
				p, settled = r.startProcess(false), 0
			}
		}
		r.Len(held, plan.kills)
		took := time.Since(started)
		r.Zero(r.Count(outbox.Failed))
		r.LessOrEqual(r.Attempts()+1, plan.kills+1)
		duplicates := r.broker.allArrived(r.broker.drain(r.queue), total)
		t.Logf("seed %d: %d messages, %d kills of a process that held %v: lost 0, at most %d attempts, %d arrived twice or more; %v",
			seed, total, len(held), held, r.Attempts()+1, duplicates, took.Round(time.Millisecond))
	})
}

// run is the process.
func (job forwarderJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := amqp.NewPublisher(amqp.Config{URL: job.URL, DeclareQueues: []string{job.Queue}}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	var mu sync.Mutex
	tell := func(event string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, event)
	}
	fw, err := forwarder.New(db, &toldPublisher{p, tell, job.Hang}, forwarder.Config{
		Topics: []string{job.Queue}, BatchSize: job.Batch,
		Subscriber: outbox.SubscriberConfig{
			Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, LeaseDuration: job.Lease, MaxAttempts: 100, HandlerLog: outbox.LogOff,
			Hooks: outbox.Hooks{OnSettle: func(outbox.SettleEvent) { tell(toldSettled) }},
		},
	}, nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the end of the job, however it comes
		stop()
	}()
	return fw.Run(ctx)
}

// A toldPublisher tells when the broker has confirmed.
type toldPublisher struct {
	message.Publisher
	tell func(string)
	hang bool
}

func (p *toldPublisher) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if err == nil {
		p.tell(toldConfirmed)
		if p.hang {
			select {}
		}
	}
	return err
}
