package stages_test

import (
	"database/sql"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// prompt is an outbox whose expired messages are due at once.
func (f fixture) prompt() *outbox.Outbox {
	f.T.Helper()
	o, err := outbox.New(f.DB.DB, outbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema,
		ExpiryBackoff: func(int) time.Duration { return 0 }}, nil)
	f.NoError(err)
	return o
}

// Every outcome saves stages, beside messages that have none, and a later one adds to them.
func TestStages_AreSavedWithEveryOutcome(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		f.Enqueue("orders", 1, 6)
		claimed := f.claimAll("orders", time.Minute)
		f.Len(claimed, 6)
		for _, c := range claimed {
			f.Equal(middleware.Stored, c.Stages)
		}
		to := func(i int, outcome outbox.Outcome, stages middleware.StageSet) outbox.Settlement {
			return outbox.Settlement{Receipt: claimed[i].Receipt, Outcome: outcome, Delay: time.Hour * time.Duration(outcome&1), Stages: stages}
		}
		f.Empty(f.settle(to(0, outbox.Ack, 0), to(1, outbox.Ack, middleware.ReceptorProcessed|middleware.PerspectiveProcessed),
			to(2, outbox.Retry, first), to(3, outbox.Release, middleware.Published|second), to(4, outbox.Fail, third), to(5, outbox.Ack, 0)))
		want := []string{"Stored", "Stored, ReceptorProcessed, PerspectiveProcessed", "Stored, own 0", "Stored, Published, own 1", "Stored, own 2", "Stored"}
		for i, status := range []outbox.Status{outbox.Done, outbox.Done, outbox.Ready, outbox.Ready, outbox.Failed, outbox.Done} {
			record := f.record(claimed[i].ID)
			f.Equal(status, record.Status)
			f.Equal(want[i], record.Stages.String())
			f.Equal(want[i], f.shown(claimed[i]))
			f.Equal(status == outbox.Done || status == outbox.Failed, !record.ProcessedAt.IsZero())
		}
		dead, err := f.Failed(t.Context(), outbox.ListParams{})
		f.NoError(err)
		f.Equal(middleware.Stored|third, dead[0].Stages)

		again := f.claim("orders")
		f.Equal(middleware.Stored|middleware.Published|second, again.Stages)
		f.Empty(f.settle(outbox.Settlement{Receipt: again.Receipt, Outcome: outbox.Ack, Stages: first | middleware.OwnStage<<15}))
		f.Equal("Stored, Published, own 0, own 1, own 15", f.shown(again))
	})
}

// Stages stay with a message whose lease expires, whose old worker can add none, and with one that is requeued, unless it is
// to start over. Messages of streams are no exception.
func TestStages_SurviveExpiryAndRequeue(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		f.Outbox.Outbox = f.prompt()
		for _, key := range []string{"", "a stream"} {
			topic := "orders" + key
			f.add(outbox.Message{UUID: "1", Topic: topic, StreamKey: key})
			f.Empty(f.settle(outbox.Settlement{Receipt: f.claim(topic).Receipt, Outcome: outbox.Release, Stages: first}))

			lost := f.claim(topic)
			f.expire()
			_, err := f.ReapExpired(t.Context())
			f.NoError(err)
			f.Len(f.settle(outbox.Settlement{Receipt: lost.Receipt, Outcome: outbox.Retry, Stages: second}), 1)
			c := f.claim(topic)
			f.Equal(middleware.Stored|first, c.Stages)
			f.Len(f.settle(outbox.Settlement{Receipt: lost.Receipt, Stages: second}), 1, "the row is another's")

			for _, startOver := range []bool{false, true} {
				f.Empty(f.settle(outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Fail, Stages: third}))
				n, err := f.Requeue(t.Context(), outbox.RequeueParams{Topic: topic, StartOver: startOver})
				f.NoError(err)
				f.Equal(1, n)
				c = f.claim(topic)
				f.Equal(!startOver, c.Stages.Has(first|third), "%v", c.Stages)
				f.False(c.Stages.Has(second))
			}
			f.Empty(f.settle(outbox.Settlement{Receipt: c.Receipt}))
		}

		// A blocked stream is resumed with what its head has done.
		f.add(outbox.Message{UUID: "1", Topic: "bills", StreamKey: "a"})
		f.Empty(f.settle(outbox.Settlement{Receipt: f.claim("bills").Receipt, Outcome: outbox.Fail, Stages: first}))
		f.NoError(f.RequeueStream(t.Context(), "bills", "a"))
		f.Equal(middleware.Stored|first, f.claim("bills").Stages)
	})
}

// Saving in a transaction is undone with it, adds to what is there, tells what was there before, and is refused to others than
// the owner.
func TestStages_AreSavedInATransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		id := f.add(outbox.Message{UUID: "1", Topic: "orders"})[0]
		c := f.claim("orders")
		save := func(owner outbox.OwnerToken, stages middleware.StageSet, commit bool) (before []bool) {
			tx, err := f.DB.Begin()
			f.NoError(err)
			f.NoError(seam.Outbox(f.Outbox.Outbox).Run(t.Context(), tx, "outbox_stage_save", map[string]any{"seq": c.Receipt.Seq, "owner": owner, "stages": stages},
				func(rows *sql.Rows) error {
					before = append(before, false)
					return rows.Scan(&before[len(before)-1])
				}))
			if commit {
				f.NoError(tx.Commit())
			} else {
				f.NoError(tx.Rollback())
			}
			return before
		}
		f.Equal([]bool{false}, save(c.Receipt.Owner, first, false))
		f.Equal(middleware.Stored, f.record(id).Stages)
		f.Equal([]bool{false}, save(c.Receipt.Owner, first, true))
		f.Equal([]bool{true}, save(c.Receipt.Owner, first, true))
		f.Equal([]bool{false}, save(c.Receipt.Owner, second, true))
		f.Empty(save(outbox.OwnerToken{1}, third, true))
		f.Equal(middleware.Stored|first|second, f.record(id).Stages)
		f.Empty(f.settle(outbox.Settlement{Receipt: c.Receipt}))
		f.Empty(save(c.Receipt.Owner, third, true))
	})
}

// A step that is acked with stages is counted in its join.
func TestStages_OfAStep(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		joins, err := join.NewCoordinator(f.DB.DB, join.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
		f.NoError(err)
		id, err := joins.Start(t.Context(), nil, join.StartParams{ExpectedSteps: 3})
		f.NoError(err)
		_, err = joins.Enqueue(t.Context(), nil, id, outbox.Message{UUID: "1", Topic: "orders"}, outbox.Message{UUID: "2", Topic: "orders"}, outbox.Message{UUID: "3", Topic: "orders"})
		f.NoError(err)
		claimed := f.claimAll("orders", time.Minute)
		f.Empty(f.settle(outbox.Settlement{Receipt: claimed[0].Receipt}, outbox.Settlement{Receipt: claimed[1].Receipt, Stages: first},
			outbox.Settlement{Receipt: claimed[2].Receipt, Outcome: outbox.Fail, Stages: first}))
		j, err := joins.Get(t.Context(), nil, id)
		f.NoError(err)
		f.Equal([]int{2, 1}, []int{j.CompletedSteps, j.FailedSteps})
	})
}

// With DeleteOnAck nothing is left that could have stages.
func TestStages_WithDeleteOnAck(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		var err error
		f.Outbox.Outbox, err = outbox.New(f.DB.DB, outbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, DeleteOnAck: true}, nil)
		f.NoError(err)
		f.Enqueue("orders", 1, 1)
		f.Empty(f.settle(outbox.Settlement{Receipt: f.claim("orders").Receipt, Stages: first}))
		f.Zero(f.Number("SELECT COUNT(*) FROM {outbox_state}"))
	})
}
