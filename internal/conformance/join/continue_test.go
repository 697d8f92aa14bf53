package join_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// What becomes of waits and of joins within joins.

func TestJoinContinuationTellsOfItsJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		for _, end := range []struct {
			next, status, completed, failed string
			end                             func(id join.ID)
		}{
			{"next", "completed", "3", "0", func(join.ID) { f.EndSteps("s", 0) }},
			{"next", "failed", "1", "2", func(join.ID) { f.EndSteps("s", 2) }},
			{"failed", "cancelled", "0", "0", func(id join.ID) { f.NoError(c.Cancel(f.Context(), nil, id)) }},
		} {
			id, _ := f.StartWith(c, "s", 3)
			w := suite.Waits(id, "next", "failed")
			own := map[string]string{"k": "v", "correlation_id": "cause", join.HeaderStatus: "made up"}
			w.OnComplete.Headers, w.OnFail.Headers = own, own
			w.OnComplete.Payload, w.OnFail.Payload = []byte("\x00\xff payload"), nil
			wait := f.Wait(c, w)
			end.end(id)
			next := f.Continues(wait, end.next)
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
			f.Settle(suite.Settled(outbox.Ack, next)...)
		}
	})
}

func TestJoinHasAnyNumberOfWaits(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		id, _ := f.StartWith(c, "s", 1)
		first, second := f.Wait(c, suite.Waits(id, "first", "")), f.Wait(c, suite.Waits(id, "second", ""))
		f.Equal(2, f.JoinRow(id).Waiting)
		f.EndSteps("s", 0)
		f.Continues(first, "first")
		f.Continues(second, "second")
		late := f.Wait(c, suite.Waits(id, "late", ""))
		f.Continues(late, "late")
	})
}

func TestJoinWaitAfterTheEndIsDueAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 1)
		f.EndSteps("s", 0)
		wait := f.Wait(c, suite.Waits(id, "next", ""))
		f.Equal([]outbox.MessageID{wait}, suite.MessageIDs(f.Claim(join.DefaultWaitTopic)))
	})
}

// Start, steps and wait of one transaction: the doc's own example.
func TestJoinAllInOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		var wait outbox.MessageID
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			id, err := c.Start(ctx, tx, join.StartParams{ExpectedSteps: 2})
			f.NoError(err)
			_, err = c.Enqueue(ctx, tx, id, outbox.Message{Topic: "s"}, outbox.Message{Topic: "s"})
			f.NoError(err)
			wait, err = c.EnqueueWait(ctx, tx, suite.Waits(id, "next", ""))
			return err
		}))
		f.EndSteps("s", 0)
		f.Continues(wait, "next")
	})
}

// The end of a wait is the end of a message: it counts where the wait is a step.
func TestJoinWaitIsAStepOfAnotherJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		inner, _ := f.StartWith(c, "s", 1)
		outer := f.Start(c, join.StartParams{ExpectedSteps: 1})
		step := f.Wait(c, suite.Waits(inner, "inner", ""))
		f.NoError(c.Attach(f.Context(), nil, outer, step))
		wait := f.Wait(c, suite.Waits(outer, "outer", ""))
		f.Stands(c, outer, join.Pending, 0, 0)
		f.EndSteps("s", 0)
		f.Continues(wait, "outer")
		f.Stands(c, outer, join.Completed, 1, 0)
		f.Len(f.Rows("{topic} = 'inner'"), 1)
	})
}

func TestJoinTimeoutCancelsAndTakesThePathOfFailure(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		late, _ := f.StartWith(c, "s", 1)
		another := f.Wait(c, suite.Waits(late, "next", "another failed"))
		w := suite.Waits(late, "next", "failed")
		w.Timeout = 30 * time.Millisecond
		wait := f.Wait(c, w)
		next := f.Continues(wait, "failed")
		f.Equal("cancelled", next.Headers[join.HeaderStatus])
		f.Stands(c, late, join.Cancelled, 0, 0)
		f.False(f.Row(wait).Processed.Before(f.Row(wait).Created.Add(30*time.Millisecond)), "by the database's clock")
		f.Zero(f.Row(wait).Retries)
		f.Continues(another, "another failed")
		f.EndSteps("s", 0)
		f.Stands(c, late, join.Cancelled, 0, 0)

		soon, _ := f.StartWith(c, "s", 1)
		w = suite.Waits(soon, "next", "failed")
		w.Timeout = time.Hour
		wait = f.Wait(c, w)
		f.EndSteps("s", 0)
		f.Continues(wait, "next")
		f.Stands(c, soon, join.Completed, 1, 0)

		least := f.Start(c, join.StartParams{ExpectedSteps: 1})
		w = suite.Waits(least, "next", "")
		w.Timeout = time.Nanosecond
		f.Becomes(f.Wait(c, w), outbox.Done)
		f.Stands(c, least, join.Cancelled, 0, 0)
	})
}

// A deadline is that of the moment when the wait was sent, however often it is looked at.
func TestJoinTimeoutIsNotPutOff(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins(func(c *join.Config) { c.RecheckInterval = time.Millisecond })
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		before := f.Now()
		w := suite.Waits(id, "next", "")
		w.Timeout = 24 * time.Hour
		f.Wait(c, w)
		deadline := func() time.Time {
			return time.UnixMilli(f.Number("SELECT "+f.JoinMillis("deadline")+" FROM {wait} WHERE {join_id} = '%s'", id)).UTC()
		}
		first := deadline()
		f.Between(before.Add(24*time.Hour), f.Now().Add(24*time.Hour), first)
		messages := f.Subscribe(f.Subscriber(), join.DefaultWaitTopic)
		for range 3 {
			msg := f.Receive(messages)
			f.NoError(c.HandleWait(msg))
			msg.Ack()
		}
		f.Equal(first, deadline())
	})
}

func TestJoinWithinAJoinEndsItsStep(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		parent := f.Start(c, join.StartParams{ExpectedSteps: 3})
		ends := map[join.StepStatus][]join.ID{}
		for _, end := range []func(id join.ID) join.StepStatus{
			func(join.ID) join.StepStatus { f.EndSteps("s", 0); return join.StepCompleted },
			func(join.ID) join.StepStatus { f.EndSteps("s", 1); return join.StepFailed },
			func(id join.ID) join.StepStatus {
				f.NoError(c.Cancel(f.Context(), nil, id))
				return join.StepFailed
			},
		} {
			child, _ := f.StartWith(c, "s", 2)
			f.NoError(c.AttachJoin(f.Context(), nil, parent, child))
			f.NoError(c.AttachJoin(f.Context(), nil, parent, child), "twice is once")
			step := outbox.MessageID(child)
			f.Equal(join.StepPending, f.Step(parent, step))
			status := end(child)
			ends[status] = append(ends[status], child)
			f.Eventually(func() bool { return f.Step(parent, step) == status }, suite.Patience, 2*time.Millisecond)
		}
		f.Stands(c, parent, join.Failed, 1, 2)
		f.Len(ends[join.StepCompleted], 1)
		steps, err := c.Steps(f.Context(), nil, parent, outbox.MessageID{}, 10)
		f.NoError(err)
		for _, s := range steps {
			f.True(s.ByReport)
		}
	})
}

func TestJoinWithinAJoinWithinAJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		var chain []join.ID
		for i := range 4 {
			id := f.Start(c, join.StartParams{ExpectedSteps: 1})
			if i > 0 {
				f.NoError(c.AttachJoin(f.Context(), nil, chain[i-1], id))
			}
			chain = append(chain, id)
		}
		wait := f.Wait(c, suite.Waits(chain[0], "next", ""))
		f.AddSteps(c, chain[3], "s", 1)
		f.EndSteps("s", 0)
		f.Continues(wait, "next")
		for _, id := range chain {
			f.Stands(c, id, join.Completed, 1, 0)
		}

		// One that has ended already ends its step, too, and in a transaction that is rolled back nothing is attached.
		another := f.Start(c, join.StartParams{ExpectedSteps: 1})
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(c.AttachJoin(f.Context(), tx, another, chain[0]))
			if commit {
				f.NoError(tx.Commit())
			} else {
				f.NoError(tx.Rollback())
				f.Zero(f.JoinRow(another).Members)
			}
		}
		f.Eventually(func() bool { return f.JoinRow(another).Status != 0 }, suite.Patience, 2*time.Millisecond)
		f.Stands(c, another, join.Completed, 1, 0)
	})
}

// A waiting subscriber is woken by whoever ends the join in its process, and need not poll.
func TestJoinEndWakesTheWait(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins(func(c *join.Config) { c.WaitTopic = "a topic that no other test wakes on " + f.DB.Name })
		f.RunWaits(c, func(c *outbox.SubscriberConfig) { c.PollInterval, c.MaxPollInterval = time.Hour, time.Hour })
		id, _ := f.StartWith(c, "s", 1)
		wait := f.Wait(c, suite.Waits(id, "next", ""))
		f.EndSteps("s", 0)
		f.Continues(wait, "next")

		another, steps := f.StartWith(c, "s", 1)
		wait = f.Wait(c, suite.Waits(another, "next 2", ""))
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			return c.ReportStepCompleted(ctx, tx, another, steps[0])
		}))
		f.Continues(wait, "next 2")
	})
}
