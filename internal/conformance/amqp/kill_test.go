package amqp_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testforwarder"
	"github.com/incursa/watermill-outbox/internal/testprocess"
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
	job := testforwarder.For(r.Outbox, r.queue, r.broker.url)
	job.Lease, job.Batch, job.Hang = lease, newRelayPlan().batch(), hang
	return process{job.Start(r.T, lines), lines}
}

// next waits for some news.
func (r *relay) next(p process) string {
	r.T.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line := <-p.lines:
		r.NotEmpty(line.Text, "the forwarder's process has ended")
		event, _, _ := strings.Cut(line.Text, " ")
		return event
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
		r.Equal(testforwarder.Confirmed, r.next(hanging))
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
			if r.next(p) == testforwarder.Settled {
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
