package stages_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/middleware"
)

var errStage = errors.New("the stage fails")

// A run records the runs of stages, and says how they end.
type run struct {
	fixture
	ends func(name string, try int, msg *message.Message) error

	mu    sync.Mutex
	runs  []string
	tries map[string]int
}

func (f fixture) newRun(ends func(name string, try int, msg *message.Message) error) *run {
	return &run{fixture: f, ends: ends, tries: map[string]int{}}
}

// stage has an effect, and then ends.
func (r *run) stage(name string, number int, db *sql.DB) middleware.Stage {
	return middleware.Stage{Bit: middleware.OwnStage << number, Name: name, DB: db, Run: func(msg *message.Message) error {
		if err := affect(r.DB.DB, r.effects(), number, msg); err != nil {
			return err
		}
		r.mu.Lock()
		r.runs = append(r.runs, name)
		r.tries[name]++
		try := r.tries[name]
		r.mu.Unlock()
		return r.ends(name, try, msg)
	}}
}

// ran are the runs so far.
func (r *run) ran() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs
}

func firstFails(_ string, try int, _ *message.Message) error {
	if try == 1 {
		return errStage
	}
	return nil
}

// What has succeeded is not repeated, and an effect in a transaction happens once.
func TestStages_EachFailsInTurn(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		r := f.newRun(firstFails)
		f.Enqueue("orders", 1, 1)
		f.serve("orders", f.handler(r.stage("a", 0, f.DB.DB), r.stage("b", 1, nil), r.stage("c", 2, f.DB.DB)))
		f.Becomes(outbox.Done, 1)
		f.Equal([]string{"a", "a", "b", "b", "c", "c"}, r.ran())
		f.Equal([]int{1, 2, 1}, []int{f.affected(0), f.affected(1), f.affected(2)}, "b has no transaction")
		f.Equal(3, f.Attempts())
	})
}

// A panic, and the last of all attempts, save what has succeeded before, too.
func TestStages_SurviveAPanicAndTheLastAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		suite.Need(t, f.DB, suite.UnescapesJSON)
		r := f.newRun(func(name string, try int, _ *message.Message) error {
			switch {
			case name != "c":
				return nil
			case try == 1:
				panic("the stage panics")
			default:
				return outbox.Permanent(errStage)
			}
		})
		ids := f.add(outbox.Message{UUID: "1", Topic: "orders"})
		f.serve("orders", f.handler(r.stage("a", 0, nil), r.stage("b", 1, f.DB.DB), r.stage("c", 2, f.DB.DB)))
		f.Becomes(outbox.Failed, 1)
		record := f.record(ids[0])
		f.Equal("Stored, own 0, own 1", record.Stages.String())
		f.Contains(record.LastError, `stage "c": the stage fails`)
		f.Equal([]string{"a", "b", "c", "c"}, r.ran())
		f.Equal([]int{1, 1, 0}, []int{f.affected(0), f.affected(1), f.affected(2)})
	})
}

// A worker whose lease was lost saves nothing, neither with its answer nor in a stage's transaction, which is rolled back.
func TestStages_AStaleWorkerSavesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		var thief outbox.Claimed
		stolen, answered := make(chan struct{}), make(chan error, 1)
		r := f.newRun(func(name string, _ int, _ *message.Message) error {
			if name == "a" { // before the transaction of b, because SQLite has one writer
				f.expire()
				_, err := f.ReapExpired(context.WithoutCancel(t.Context()))
				f.NoError(err)
				thief = f.claim("orders")
				close(stolen)
			}
			return nil
		})
		f.Outbox.Outbox = f.prompt()
		ids := f.add(outbox.Message{UUID: "1", Topic: "orders"})
		handler := f.handler(r.stage("a", 0, nil), r.stage("b", 1, f.DB.DB), r.stage("c", 2, f.DB.DB))
		settled := make(chan outbox.SettleEvent, 100)
		f.serve("orders", func(msg *message.Message) error {
			err := handler(msg)
			answered <- err
			return err
		}, func(c *outbox.SubscriberConfig) {
			c.MaxInFlight = 1 // it cannot be the thief
			c.Hooks.OnSettle = func(e outbox.SettleEvent) { settled <- e }
		})
		<-stolen
		f.ErrorIs(<-answered, outbox.ErrLeaseLost)
		e := <-settled
		for e.Err != nil || e.Busy > 0 { // it is settled again
			e = <-settled
		}
		f.Equal(1, e.Refused+e.Unknown)
		f.Equal([]string{"a", "b"}, r.ran())
		f.Equal(0, f.affected(1), "the effect of b is rolled back")
		f.Equal(middleware.Stored, f.record(ids[0]).Stages)
		f.Empty(f.settle(outbox.Settlement{Receipt: thief.Receipt, Stages: first}))
		f.Equal(middleware.Stored|first, f.record(ids[0]).Stages)
	})
}

// The answer to the commit of a stage was lost, and the handler runs again in the same attempt: the stage's second effect is
// rolled back.
func TestStages_ALostAnswerRepeatsNoEffect(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		r := f.newRun(func(string, int, *message.Message) error { return nil })
		f.Enqueue("orders", 1, 1)
		handler := f.handler(r.stage("a", 0, f.DB.DB))
		f.serve("orders", func(msg *message.Message) error {
			err := outbox.InTx(msg.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error { // and Saved is never called
				before, err := seam.Stages(delivery(msg)).SaveTx(ctx, tx, first)
				f.False(before)
				return errors.Join(err, affect(f.DB.DB, f.effects(), 0, messageIn(ctx, msg)))
			})
			return errors.Join(err, handler(msg))
		})
		f.Becomes(outbox.Done, 1)
		f.Equal(1, f.affected(0))
		f.Equal([]string{"a"}, r.ran())
	})
}

// messageIn is a message with a context.
func messageIn(ctx context.Context, msg *message.Message) *message.Message {
	msg = msg.Copy()
	msg.SetContext(ctx)
	return msg
}

// A row that a transaction has locked is passed over, and settled later with its stages.
func TestStages_OfALockedRow(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		if f.DB.Name != testdb.SQLite { // there, settling waits
			suite.Need(t, f.DB, suite.SkipLocked)
		}
		ids := f.add(outbox.Message{UUID: "1", Topic: "orders"})
		locked, busy := make(chan *sql.Tx, 1), make(chan struct{}, 1000)
		f.serve("orders", func(msg *message.Message) error {
			tx, err := f.DB.Begin()
			f.NoError(err)
			_, err = seam.Stages(delivery(msg)).SaveTx(context.WithoutCancel(msg.Context()), tx, first)
			f.NoError(err)
			seam.Stages(delivery(msg)).Add(second)
			locked <- tx
			return nil
		}, func(c *outbox.SubscriberConfig) {
			c.Hooks.OnSettle = func(e outbox.SettleEvent) {
				if e.Busy > 0 {
					busy <- struct{}{}
				}
			}
		})
		tx := <-locked
		if f.DB.Name != testdb.SQLite {
			<-busy
		}
		f.NoError(tx.Commit())
		f.Becomes(outbox.Done, 1)
		f.Equal("Stored, own 0, own 1", f.record(ids[0]).Stages.String())
	})
}
