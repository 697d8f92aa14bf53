package conformance

import (
	"context"
	"database/sql"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// What becomes of waits and of joins within joins.

func TestJoinContinuationTellsOfItsJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		for _, end := range []struct {
			next, status, completed, failed string
			end                             func(id join.ID)
		}{
			{"next", "completed", "3", "0", func(join.ID) { f.endSteps("s", 0) }},
			{"next", "failed", "1", "2", func(join.ID) { f.endSteps("s", 2) }},
			{"failed", "cancelled", "0", "0", func(id join.ID) { f.NoError(c.Cancel(f.ctx(), nil, id)) }},
		} {
			id, _ := f.startWith(c, "s", 3)
			w := waits(id, "next", "failed")
			own := map[string]string{"k": "v", "correlation_id": "cause", join.HeaderStatus: "made up"}
			w.OnComplete.Headers, w.OnFail.Headers = own, own
			w.OnComplete.Payload, w.OnFail.Payload = []byte("\x00\xff payload"), nil
			wait := f.wait(c, w)
			end.end(id)
			next := f.continues(wait, end.next)
			f.Equal(map[string]string{
				"k": "v", "correlation_id": "cause", "join_id": id.String(), "join_status": end.status,
				"join_expected_steps": "3", "join_completed_steps": end.completed, "join_failed_steps": end.failed,
			}, next.Headers)
			f.Equal("cause", next.CorrelationID)
			if end.next == "next" {
				f.Equal("\x00\xff payload", string(next.Payload))
			} else {
				f.Empty(next.Payload)
			}
			f.Equal("made up", own[join.HeaderStatus], "the caller's map is the caller's")
			f.settle(settled(outbox.Ack, next)...)
		}
	})
}

func TestJoinHasAnyNumberOfWaits(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		id, _ := f.startWith(c, "s", 1)
		first, second := f.wait(c, waits(id, "first", "")), f.wait(c, waits(id, "second", ""))
		f.Equal(2, f.joinRow(id).waiting)
		f.endSteps("s", 0)
		f.continues(first, "first")
		f.continues(second, "second")
		late := f.wait(c, waits(id, "late", ""))
		f.continues(late, "late")
	})
}

func TestJoinWaitAfterTheEndIsDueAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "s", 1)
		f.endSteps("s", 0)
		wait := f.wait(c, waits(id, "next", ""))
		f.Equal([]outbox.MessageID{wait}, messageIDs(f.claim(join.DefaultWaitTopic)))
	})
}

// Start, steps and wait of one transaction: the doc's own example.
func TestJoinAllInOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		var wait outbox.MessageID
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			id, err := c.Start(ctx, tx, join.StartParams{ExpectedSteps: 2})
			f.NoError(err)
			_, err = c.Enqueue(ctx, tx, id, outbox.Message{Topic: "s"}, outbox.Message{Topic: "s"})
			f.NoError(err)
			wait, err = c.EnqueueWait(ctx, tx, waits(id, "next", ""))
			return err
		}))
		f.endSteps("s", 0)
		f.continues(wait, "next")
	})
}

// The end of a wait is the end of a message: it counts where the wait is a step.
func TestJoinWaitIsAStepOfAnotherJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		inner, _ := f.startWith(c, "s", 1)
		outer := f.start(c, join.StartParams{ExpectedSteps: 1})
		step := f.wait(c, waits(inner, "inner", ""))
		f.NoError(c.Attach(f.ctx(), nil, outer, step))
		wait := f.wait(c, waits(outer, "outer", ""))
		f.stands(c, outer, join.Pending, 0, 0)
		f.endSteps("s", 0)
		f.continues(wait, "outer")
		f.stands(c, outer, join.Completed, 1, 0)
		f.Len(f.rows("{topic} = 'inner'"), 1)
	})
}

func TestJoinTimeoutCancelsAndTakesThePathOfFailure(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		late, _ := f.startWith(c, "s", 1)
		another := f.wait(c, waits(late, "next", "another failed"))
		w := waits(late, "next", "failed")
		w.Timeout = 30 * time.Millisecond
		wait := f.wait(c, w)
		next := f.continues(wait, "failed")
		f.Equal("cancelled", next.Headers[join.HeaderStatus])
		f.stands(c, late, join.Cancelled, 0, 0)
		f.False(f.row(wait).processed.Before(f.row(wait).created.Add(30*time.Millisecond)), "by the database's clock")
		f.Zero(f.row(wait).retries)
		f.continues(another, "another failed")
		f.endSteps("s", 0)
		f.stands(c, late, join.Cancelled, 0, 0)

		soon, _ := f.startWith(c, "s", 1)
		w = waits(soon, "next", "failed")
		w.Timeout = time.Hour
		wait = f.wait(c, w)
		f.endSteps("s", 0)
		f.continues(wait, "next")
		f.stands(c, soon, join.Completed, 1, 0)

		least := f.start(c, join.StartParams{ExpectedSteps: 1})
		w = waits(least, "next", "")
		w.Timeout = time.Nanosecond
		f.becomes(f.wait(c, w), outbox.Done)
		f.stands(c, least, join.Cancelled, 0, 0)
	})
}

// A deadline is that of the moment when the wait was sent, however often it is looked at.
func TestJoinTimeoutIsNotPutOff(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins(func(c *join.Config) { c.RecheckInterval = time.Millisecond })
		id := f.start(c, join.StartParams{ExpectedSteps: 1})
		before := f.now()
		w := waits(id, "next", "")
		w.Timeout = 24 * time.Hour
		f.wait(c, w)
		deadline := func() time.Time {
			return time.UnixMilli(f.number("SELECT "+f.joinMillis("deadline")+" FROM {wait} WHERE {join_id} = '%s'", id)).UTC()
		}
		first := deadline()
		f.between(before.Add(24*time.Hour), f.now().Add(24*time.Hour), first)
		messages := f.subscribe(f.subscriber(), join.DefaultWaitTopic)
		for range 3 {
			msg := f.receive(messages)
			f.NoError(c.HandleWait(msg))
			msg.Ack()
		}
		f.Equal(first, deadline())
	})
}

func TestJoinWithinAJoinEndsItsStep(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		parent := f.start(c, join.StartParams{ExpectedSteps: 3})
		ends := map[join.StepStatus][]join.ID{}
		for _, end := range []func(id join.ID) join.StepStatus{
			func(join.ID) join.StepStatus { f.endSteps("s", 0); return join.StepCompleted },
			func(join.ID) join.StepStatus { f.endSteps("s", 1); return join.StepFailed },
			func(id join.ID) join.StepStatus {
				f.NoError(c.Cancel(f.ctx(), nil, id))
				return join.StepFailed
			},
		} {
			child, _ := f.startWith(c, "s", 2)
			f.NoError(c.AttachJoin(f.ctx(), nil, parent, child))
			f.NoError(c.AttachJoin(f.ctx(), nil, parent, child), "twice is once")
			step := outbox.MessageID(child)
			f.Equal(join.StepPending, f.step(parent, step))
			status := end(child)
			ends[status] = append(ends[status], child)
			f.Eventually(func() bool { return f.step(parent, step) == status }, patience, 2*time.Millisecond)
		}
		f.stands(c, parent, join.Failed, 1, 2)
		f.Len(ends[join.StepCompleted], 1)
		steps, err := c.Steps(f.ctx(), nil, parent, outbox.MessageID{}, 10)
		f.NoError(err)
		for _, s := range steps {
			f.True(s.ByReport)
		}
	})
}

func TestJoinWithinAJoinWithinAJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		var chain []join.ID
		for i := range 4 {
			id := f.start(c, join.StartParams{ExpectedSteps: 1})
			if i > 0 {
				f.NoError(c.AttachJoin(f.ctx(), nil, chain[i-1], id))
			}
			chain = append(chain, id)
		}
		wait := f.wait(c, waits(chain[0], "next", ""))
		f.addSteps(c, chain[3], "s", 1)
		f.endSteps("s", 0)
		f.continues(wait, "next")
		for _, id := range chain {
			f.stands(c, id, join.Completed, 1, 0)
		}

		// One that has ended already ends its step, too, and in a transaction that is rolled back nothing is attached.
		another := f.start(c, join.StartParams{ExpectedSteps: 1})
		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			f.NoError(c.AttachJoin(f.ctx(), tx, another, chain[0]))
			if commit {
				f.NoError(tx.Commit())
			} else {
				f.NoError(tx.Rollback())
				f.Zero(f.joinRow(another).members)
			}
		}
		f.Eventually(func() bool { return f.joinRow(another).status != 0 }, patience, 2*time.Millisecond)
		f.stands(c, another, join.Completed, 1, 0)
	})
}

// A waiting subscriber is woken by whoever ends the join in its process, and need not poll.
func TestJoinEndWakesTheWait(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins(func(c *join.Config) { c.WaitTopic = "a topic that no other test wakes on " + f.db.Name })
		f.runWaits(c, func(c *outbox.SubscriberConfig) { c.PollInterval, c.MaxPollInterval = time.Hour, time.Hour })
		id, _ := f.startWith(c, "s", 1)
		wait := f.wait(c, waits(id, "next", ""))
		f.endSteps("s", 0)
		f.continues(wait, "next")

		another, steps := f.startWith(c, "s", 1)
		wait = f.wait(c, waits(another, "next 2", ""))
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			return c.ReportStepCompleted(ctx, tx, another, steps[0])
		}))
		f.continues(wait, "next 2")
	})
}
