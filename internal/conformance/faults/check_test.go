package faults_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// The end of the test under faults: everything drains, and is then held against the book.

// drain waits, without faults, until nothing is left to be done. What is left after some patience is stuck.
func (r *faultRun) drain() {
	s := r.subscriberBeside(r.DB.DB)
	for _, topic := range append([]string{"manual"}, r.book.stales...) {
		r.serve(s, topic, "queue", func(msg *message.Message) error {
			r.note(msg)
			return nil
		})
	}
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		left := r.left()
		if len(left) == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-timer.C:
			r.noteStuck(left)
			return
		}
	}
}

// left is what is still to be done.
func (r *faultRun) left() map[string]int {
	left := map[string]int{}
	_, err := r.Outbox.Requeue(r.Context(), outbox.RequeueParams{Topic: "poison"})
	r.NoError(err)
	left["pending joins"] = r.endJoins()
	left["messages of the log for cursors"] = r.readToTheEnd()
	left["messages that are ready or in progress"] = int(r.Number("SELECT COUNT(*) FROM {all} WHERE {status} IN (0, 1)"))
	left["poisonous messages that failed"] = int(r.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 3 AND {topic} = 'poison'"))
	left["messages of the inbox"] = r.inboxLeft()
	left["messages of the log for groups"] = r.unread()
	maps.DeleteFunc(left, func(_ string, n int) bool { return n == 0 })
	return left
}

func (r *faultRun) noteStuck(left map[string]int) {
	r.T.Helper()
	for what, n := range left {
		r.book.stuck += n
		r.book.mistake("stuck: %d %s", n, what)
	}
	now := r.Now()
	for _, row := range r.Rows("{status} IN (0, 1)") {
		records, err := r.Outbox.Get(r.Context(), row.ID)
		r.NoError(err)
		for _, m := range records {
			r.book.mistake("stuck: %s on %q, %v, due %v ago, lease over %v ago, %d attempts, %q, %s", m.UUID, m.Topic, m.Status,
				now.Sub(m.NextAttemptAt), now.Sub(m.LockedUntil), m.RetryCount, m.LastError, m.Payload)
		}
	}
}

func (r *faultRun) inboxLeft() (n int) {
	r.T.Helper()
	table := r.Object(r.Either("inbox_state", "Inbox_State"))
	r.NoError(r.DB.QueryRowContext(r.Context(), r.SQL("SELECT COUNT(*) FROM %s WHERE {status} IN (0, 1)", table)).Scan(&n))
	return n
}

// unread is how many messages the consumer groups have not seen of what the cursors have.
func (r *faultRun) unread() (n int) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	for _, name := range r.book.places {
		thing := r.book.things[name]
		if thing == nil {
			continue
		}
		for _, group := range groupsUnderFaults {
			if r.book.seenBy[group+" of "+thing.topic][name] == 0 {
				n++
			}
		}
	}
	return n
}

// check holds what is there against the book.
func (r *faultRun) check() {
	rows, effects := r.names(r.Column("uuid"), r.Object(r.Config.Dialect.Traits().Table)), r.effects()
	received := r.names(r.Column("uuid"), r.Object(r.Either("inbox", "Inbox")))
	placed := map[string]bool{}
	for _, name := range r.book.places {
		placed[name] = true
	}
	there := map[string]bool{}
	for name, thing := range r.book.things {
		stored := rows[name]
		if thing.inInbox {
			stored = received[name]
		}
		there[name] = stored > 0 || len(thing.ids) > 0 || placed[name] || effects[thing.effect+" "+name] > 0
		if stored > 1 || len(thing.ids) > 1 {
			r.book.mistake("%s is there %d times, and was handled as %d messages", name, stored, len(thing.ids))
		}
		r.checkThing(thing, there[name], placed[name], effects)
	}
	for _, group := range r.book.groups {
		for _, name := range group {
			if there[name] != there[group[0]] {
				r.book.mistake("of one transaction, %s is there: %v, and %s: %v", group[0], there[group[0]], name, there[name])
			}
		}
	}
	for _, group := range cursorsUnderFaults {
		for name := range placed {
			if n := effects[group+" "+name]; n != 1 {
				r.book.mistake("the %s had %d effects for %s", group, n, name)
			}
		}
	}
	r.checkJoins()
	r.checkLog()
	if n := r.Number("SELECT COUNT(*) FROM {all} WHERE {last_error} LIKE 'stale%%'"); n > 0 {
		r.book.staleWrite("%d rows", n)
	}
}

// checkThing holds one thing against what its caller was told.
func (r *faultRun) checkThing(thing *faultThing, there, placed bool, effects map[string]int) {
	handled := len(thing.ids) > 0
	switch {
	case thing.known == isDone && !there:
		r.book.lose("%s, which was committed", thing.name)
	case thing.known == notDone && there:
		r.book.mistake("%s on %q was not committed, and is there: %v", thing.name, thing.topic, thing.err)
	case there && (thing.queued || thing.inInbox) && !handled:
		r.book.lose("%s on %q, which no handler has had", thing.name, thing.topic)
	case there && thing.inLog && !placed:
		r.book.lose("%s, which is not in the log", thing.name)
	}
	if thing.effect == "" {
		return
	}
	n := effects[thing.effect+" "+thing.name]
	if there && n == 0 {
		r.book.lose("the effect %q of %s", thing.effect, thing.name)
	}
	if n > 1 {
		r.book.mistake("the effect %q of %s happened %d times", thing.effect, thing.name, n)
	}
}

// names counts the values of a column.
func (r *faultRun) names(column, from string) map[string]int {
	r.T.Helper()
	counts := map[string]int{}
	rows, err := r.DB.QueryContext(r.Context(), r.SQL("SELECT %[1]s, COUNT(*) FROM %[2]s GROUP BY %[1]s", column, from))
	r.NoError(err)
	defer func() { r.NoError(rows.Close()) }()
	for rows.Next() {
		var name string
		var n int
		r.NoError(rows.Scan(&name, &n))
		counts[name] = n
	}
	r.NoError(rows.Err())
	return counts
}

// effects counts the rows that transactions have left, by what they are and for whom.
func (r *faultRun) effects() map[string]int {
	r.T.Helper()
	text := "what || ' ' || id"
	if r.Either("", "+") == "+" {
		text = "what + ' ' + id"
	}
	return r.names(text, r.Object("effects"))
}

// lose notes what was committed and is not there, or was never handled.
func (b *faultBook) lose(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost++
	b.wrong = append(b.wrong, "lost: "+fmt.Sprintf(format, args...))
}

// report prints what happened on one database, and fails the test if anything did that should not have.
func (r *faultRun) report(worked, drained time.Duration) *faultTotal {
	r.T.Helper()
	injected, kinds := r.schedule.Injected()
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.T.Logf("%d calls in %v, all drained %v later; %d left open what they did; faults: %s",
		r.calls.Load(), worked.Round(time.Millisecond), drained.Round(time.Millisecond), r.book.unknown, kinds)
	wrong := slices.Compact(slices.Sorted(slices.Values(r.book.wrong)))
	if shown := min(len(wrong), 30); shown > 0 {
		r.T.Errorf("%d wrong answers:\n%s", len(wrong), strings.Join(wrong[:shown], "\n"))
	}
	total := &faultTotal{
		operations: r.operations, injected: injected, lost: r.book.lost, stuck: r.book.stuck, twoLive: r.book.twoLive,
		stale: r.book.stale, wrong: len(wrong),
	}
	total.print(r.T, "faults on "+r.DB.Name)
	return total
}

// A faultTotal is what is told at the end, of one database or of all.
type faultTotal struct {
	mu                                                       sync.Mutex
	operations, injected, lost, stuck, twoLive, stale, wrong int
}

func (f *faultTotal) add(o *faultTotal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.operations += o.operations
	f.injected += o.injected
	f.lost += o.lost
	f.stuck += o.stuck
	f.twoLive += o.twoLive
	f.stale += o.stale
	f.wrong += o.wrong
}

// print also writes to the file that OUTBOX_TEST_FAULTS_REPORT names.
func (f *faultTotal) print(t *testing.T, head string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	line := fmt.Sprintf("%s: operations %d, faults injected %d, lost %d, stuck %d, two live handlers %d, stale writes %d, wrong answers %d",
		head, f.operations, f.injected, f.lost, f.stuck, f.twoLive, f.stale, f.wrong)
	t.Log(line)
	if name := os.Getenv("OUTBOX_TEST_FAULTS_REPORT"); name != "" {
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = fmt.Fprintln(file, line)
		require.NoError(t, errors.Join(err, file.Close()))
	}
}
