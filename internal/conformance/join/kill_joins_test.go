package join_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
	"github.com/incursa/watermill-outbox/join"
)

// Worker processes are killed while they hold steps and waits of joins. Each join ends nevertheless, and each of its waits
// continues once.
func TestLong_KilledWorkersLoseNoJoin(t *testing.T) {
	const steps = 5
	joins, plan, seed := 40, killPlan{workers: 3, kills: 3, patience: time.Minute}, testprocess.Seed(t)
	if os.Getenv("OUTBOX_TEST_KILL") == "full" {
		joins, plan.kills = 1000, 20
	}
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEach(t, func(t *testing.T, f *fixture) {
		r := &killRun{
			fixture: f, killPlan: plan, random: rand.New(rand.NewPCG(seed, 0)), lines: make(chan testprocess.Line), handled: map[int]int{},
			joins: joinJob{Recheck: 20 * time.Millisecond}} // so that they are claimed, looked at and put off all the time
		if f.Slow() {
			r.joins.Recheck = 500 * time.Millisecond
		}
		f.Exec("CREATE TABLE %s (id INT NOT NULL, worker INT NOT NULL)", r.table())
		c, started, waits := f.Joins(), 0, 0
		r.more = func() {
			for range joins {
				id := f.Start(c, join.StartParams{ExpectedSteps: steps})
				var messages []outbox.Message
				for range steps {
					messages = append(messages, outbox.Message{UUID: fmt.Sprint(r.messages), Topic: "work"})
					r.messages++
				}
				_, err := c.Enqueue(f.Context(), nil, id, messages...)
				f.NoError(err)
				for range map[bool]int{true: 2, false: 1}[started%10 == 0] {
					f.WaitOn(c, nil, id, fmt.Sprint("next ", waits))
					waits++
				}
				started++
			}
		}
		begun := time.Now()
		r.run()
		r.checkJoins(started, waits)
		t.Logf("seed %d: %d joins of %d steps, %d waits, %d kills of %d workers, which held %v messages; at most %d attempts, %d steps handled again, %v",
			seed, started, steps, waits, len(r.held), plan.workers, r.held, r.attempts, r.duplicates, time.Since(begun).Round(time.Millisecond))
	})
}

// checkJoins asks the tables, not the workers.
func (r *killRun) checkJoins(joins, waits int) {
	r.T.Helper()
	done := "SELECT COUNT(*) FROM {all} WHERE {status} = 2 AND {topic} = '%s'"
	r.Equal(r.messages, int(r.Number(done, "work")), "steps that are done")
	r.Equal(waits, int(r.Number(done, join.DefaultWaitTopic)), "waits that are done")
	r.Equal(waits, int(r.Number("SELECT COUNT(*) FROM {all} WHERE {topic} LIKE 'next %%'")), "continuations")
	r.Equal(waits, int(r.Number("SELECT COUNT(DISTINCT {topic}) FROM {all} WHERE {topic} LIKE 'next %%'")), "waits with a continuation")
	r.Equal(joins, int(r.Number("SELECT COUNT(*) FROM %s WHERE {status} = 1 AND {completed_steps} = %d AND {failed_steps} = 0",
		r.SQL("{join}"), r.messages/joins)), "completed joins")
	r.Equal(r.messages, int(r.Number("SELECT COUNT(*) FROM %s WHERE {status} = 1", r.SQL("{member}"))), "completed steps")
	r.Equal(r.messages, int(r.Number("SELECT COUNT(DISTINCT id) FROM %s", r.table())), "steps that handlers have seen")
	r.duplicates = int(r.Number("SELECT COUNT(*) FROM %s", r.table())) - r.messages
	r.attempts = int(r.Number("SELECT MAX({retry_count}) FROM {all}")) + 1
	r.LessOrEqual(r.attempts, len(r.held)+1, "attempts after %d kills", len(r.held))
}
