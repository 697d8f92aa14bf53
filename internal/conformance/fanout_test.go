package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// Each destination gets what matches, once and in order, as it was.
func TestFanout_CopiesAreAsTheirSource(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		o := f.logOutbox()
		var ids []outbox.MessageID
		for i, topic := range []string{"orders.new", "bills.new", "orders.gone", "orders/x", "orders.new"} {
			tenant := []string{"a", "b", "a", "a", "b"}[i]
			id, err := o.Enqueue(f.ctx(), f.db.DB, outbox.Message{
				UUID: fmt.Sprint(i), Topic: topic, Payload: []byte{0, byte(i), 0xff}, CorrelationID: "cause", StreamKey: "stream",
				Headers: map[string]string{"tenant": tenant, "fanout_policy": "another", "kept": "ü"}})
			f.NoError(err)
			ids = append(ids, id...)
		}
		byTopic := toTopics("by topic", "one", "two")
		byTopic.Topics = "orders.*"
		byTenant := toTopics("by tenant", "three")
		byTenant.Tenant = fanout.Tenant{Header: "tenant", Value: "b"}
		nobody := toTopics("nobody", "four")
		nobody.Tenant = fanout.Tenant{Header: "tenant", Value: "unknown"}
		byMatch := toTopics("by match", "five")
		byMatch.Topics, byMatch.Match = "orders/*", func(msg outbox.LogMessage) bool { return msg.Payload[1] == 3 }
		f.dispatch(nil, []fanout.Policy{byTopic, byTenant, nobody, byMatch, toTopics("all", "six")})
		for _, policy := range []string{"by topic", "by tenant", "nobody", "by match", "all"} {
			f.hasPassed(policy, 5)
		}
		for topic, want := range map[string]string{"one": "0 2 4", "two": "0 2 4", "three": "1 4", "four": "", "five": "3", "six": "0 1 2 3 4"} {
			f.Equal(want, strings.Join(f.uuidsOf(topic), " "), topic)
		}
		for i, c := range f.claim("one") {
			source := []int{0, 2, 4}[i]
			f.Equal([]byte{0, byte(source), 0xff}, c.Payload)
			f.Equal([]string{"cause", "stream"}, []string{c.CorrelationID, c.StreamKey})
			f.NotEqual(ids[source], c.ID)
			f.Equal(map[string]string{
				"tenant": []string{"a", "b", "a", "a", "b"}[source], "kept": "ü", fanout.HeaderPolicy: "by topic",
				fanout.HeaderPosition: fmt.Sprint(source + 1), fanout.HeaderSource: ids[source].String(), fanout.HeaderTopic: []string{"orders.new", "", "orders.gone", "", "orders.new"}[source],
			}, c.Headers)
		}
	})
}

// The cursor is in the database: whoever comes next goes on after it. A new policy begins with the oldest message.
func TestFanout_CursorsResume(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		f.logN("orders", 0, 250)
		policy := toTopics("p", "copy")
		stop := f.dispatch(nil, []fanout.Policy{policy})
		f.hasPassed("p", 250)
		stop()
		f.logN("orders", 250, 300)
		f.dispatch(nil, []fanout.Policy{policy, toTopics("new", "new copy")})
		f.hasPassed("p", 300)
		f.hasPassed("new", 300)
		f.Equal(numbered(0, 300), f.uuidsOf("copy"))
		f.Equal(numbered(0, 300), f.uuidsOf("new copy"))
	})
}

// What was inserted first and commits last is dispatched too.
func TestFanout_LateCommits(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters)
		f.sequencer()
		f.dispatch(nil, []fanout.Policy{toTopics("p", "copy")})
		late, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }() // for a failure before the commit
		_, err = f.logOutbox().Enqueue(f.ctx(), late, outbox.Message{UUID: "first", Topic: "orders"})
		f.NoError(err)
		f.enqueueLogged(f.logOutbox(), "orders", "second")
		f.hasPassed("p", 1)
		f.NoError(late.Commit())
		f.hasPassed("p", 2)
		f.Equal([]string{"second", "first"}, f.uuidsOf("copy"))
	})
}

// Two dispatchers have the same policies: each message goes out once, and one takes over from the other.
func TestFanout_DispatchersTakeTurns(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		policies := []fanout.Policy{toTopics("one", "a", "b"), toTopics("two", "c")}
		small := func(c *fanout.Config) { c.BatchSize = 7 }
		first := f.dispatch(nil, policies, small)
		f.dispatch(nil, policies, small)
		f.logN("orders", 0, 100)
		f.hasPassed("one", 100)
		first()
		f.logN("orders", 100, 200)
		for _, policy := range []string{"one", "two"} {
			f.hasPassed(policy, 200)
		}
		for _, topic := range []string{"a", "b", "c"} {
			f.Equal(numbered(0, 200), f.uuidsOf(topic))
		}
	})
}

// A dispatch that fails in the middle leaves neither copies nor a moved cursor.
func TestFanout_TheDispatchIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		book := newLogBook()
		failing := make(chan struct{})
		policy := toTopics("p", "copy")
		policy.Join = func(ctx context.Context, tx outbox.Executor, source outbox.LogMessage) (id join.ID, ok bool, err error) {
			_, err = f.outbox.Enqueue(ctx, tx, outbox.Message{UUID: source.UUID, Topic: "side effect"})
			if source.UUID == "7" && !isClosed(failing) {
				err = errBoom
			}
			return id, false, err
		}
		f.dispatch(book, []fanout.Policy{policy, toTopics("other", "other copy")})
		f.logN("orders", 0, 10)
		line := f.await(book, "ERROR", "A policy waits")
		f.ErrorIs(line.err, errBoom)
		f.Equal("p", line.fields["policy"])
		f.hasPassed("other", 10)
		f.LessOrEqual(f.passed("p"), int64(7))
		for _, topic := range []string{"copy", "side effect"} {
			f.Len(f.uuidsOf(topic), int(f.passed("p")), topic)
		}
		close(failing)
		f.hasPassed("p", 10)
		f.await(book, "INFO", "A policy continues")
		for _, topic := range []string{"copy", "side effect"} {
			f.Equal(numbered(0, 10), f.uuidsOf(topic), topic)
		}
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A commit whose answer is lost has been done or has not: the dispatcher asks the database, and nothing is doubled or lost.
func TestTrap_ACommitWithoutAnAnswerDoublesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		var commits atomic.Int64
		lost := func(when int64, err error) func(context.Context, faults.Statement) error {
			return func(_ context.Context, s faults.Statement) error {
				if s.Text == faults.Commit && commits.Add(1)%3 == when {
					return err
				}
				return nil
			}
		}
		after := faults.Open(t, f.db, faults.Hooks{Answer: lost(1, errBoom)})
		before := faults.Open(t, f.db, faults.Hooks{Before: lost(2, &faults.Error{Number: 50000, State: "XX000", Result: 10})})
		small := func(c *fanout.Config) { c.BatchSize = 7 }
		f.logN("orders", 0, 50)
		f.dispatchOn(after, nil, []fanout.Policy{toTopics("after", "copy 1")}, small)
		f.hasPassed("after", 50)
		// The last commit is seen in the table before its answer is counted.
		f.Eventually(func() bool { return commits.Load() >= 8 }, patience, time.Millisecond)
		f.dispatchOn(before, nil, []fanout.Policy{toTopics("before", "copy 2")}, small)
		f.hasPassed("before", 50)
		f.Equal(numbered(0, 50), f.uuidsOf("copy 1"))
		f.Equal(numbered(0, 50), f.uuidsOf("copy 2"))
	})
}

// What a policy has not passed yet stays in the log.
func TestFanout_PurgingTheLogSparesWhatAPolicyHasNotPassed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		slow := newRecorder()
		slow.fail(errBoom)
		f.logN("orders", 0, 20)
		book := newLogBook()
		f.dispatch(book, []fanout.Policy{toTopics("quick", "copy"), {Name: "slow", Destinations: []fanout.Destination{fanout.ToPublisher("away", slow, "x")}}})
		f.hasPassed("quick", 20)
		f.await(book, "ERROR", "A policy waits")
		n, err := f.outbox.Purge(f.ctx(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(0, n)
		slow.fail(nil)
		f.hasPassed("slow", 20)
		n, err = f.outbox.Purge(f.ctx(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(20, n)
		f.Equal(20, f.count(), "the copies")
	})
}

func TestFanout_BadInputIsNamed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		good := toTopics("p", "copy")
		changed := func(change func(*fanout.Policy)) []fanout.Policy {
			p := toTopics("p", "copy")
			change(&p)
			return []fanout.Policy{p}
		}
		for _, test := range []struct {
			policies    []fanout.Policy
			field, text string
		}{
			{nil, "Config.Policies", "is empty"},
			{[]fanout.Policy{good, good}, "Config.Policies[1].Name", `"p" is there twice`},
			{changed(func(p *fanout.Policy) { p.Name = "" }), "Config.Policies[0].Name", "is empty"},
			{changed(func(p *fanout.Policy) { p.Name = "p " }), "Config.Policies[0].Name", "white space"},
			{changed(func(p *fanout.Policy) { p.Name = strings.Repeat("p", 249) }), "Config.Policies[0].Name", "limit"},
			{changed(func(p *fanout.Policy) { p.Topics = "orders[" }), "Config.Policies[0].Topics", `the pattern "orders[" does not compile`},
			{changed(func(p *fanout.Policy) { p.Topics = `x\` }), "Config.Policies[0].Topics", "does not compile"},
			{changed(func(p *fanout.Policy) { p.Destinations = nil }), "Config.Policies[0].Destinations", "is empty"},
			{changed(func(p *fanout.Policy) { p.Destinations = []fanout.Destination{{}} }), "Config.Policies[0].Destinations[0]", "ToTopic"},
			{changed(func(p *fanout.Policy) { p.Destinations = append(p.Destinations, p.Destinations[0]) }), "Config.Policies[0].Destinations[1]", "twice"},
			{changed(func(p *fanout.Policy) { p.Destinations[0] = fanout.ToTopic("") }), "Config.Policies[0].Destinations[0]", "no topic"},
			{changed(func(p *fanout.Policy) { p.Destinations[0] = fanout.ToTopic(" x") }), "Config.Policies[0].Destinations[0]", "white space"},
			{changed(func(p *fanout.Policy) { p.Destinations[0] = fanout.ToStore("eu", nil, "x") }), "Config.Policies[0].Destinations[0]", "no store"},
			{changed(func(p *fanout.Policy) { p.Destinations[0] = fanout.ToPublisher("mq", nil, "x") }), "Config.Policies[0].Destinations[0]", "no publisher"},
			{changed(func(p *fanout.Policy) { p.Destinations[0] = fanout.ToPublisher("", newRecorder(), "x") }), "Config.Policies[0].Destinations[0]", "no name"},
			{changed(func(p *fanout.Policy) { p.Tenant.Value = "x" }), "Config.Policies[0].Tenant", "no header"},
			{changed(func(p *fanout.Policy) { p.Tenant.Header = "x" }), "Config.Policies[0].Tenant", "name the tenant"},
			{changed(func(p *fanout.Policy) { p.Cadence.Every = 1 }), "Config.Policies[0].Cadence.Every", "1 ms"},
			{changed(func(p *fanout.Policy) { p.Cadence = fanout.Cadence{Every: time.Second, Jitter: time.Minute} }), "Config.Policies[0].Cadence.Jitter", "between"},
			{changed(func(p *fanout.Policy) {
				p.Destinations[0] = fanout.ToStore("eu", f.outbox, "x")
				p.Join = func(context.Context, outbox.Executor, outbox.LogMessage) (id join.ID, ok bool, err error) {
					return
				}
			}), "Config.Policies[0].Join", "no destination"},
		} {
			_, err := f.newDispatcher(f.db.DB, nil, test.policies)
			f.requireField(err, test.field)
			f.ErrorContains(err, test.text)
		}
		for field, change := range map[string]func(*fanout.Config){
			"Config.BatchSize":    func(c *fanout.Config) { c.BatchSize = 1001 },
			"Config.PollInterval": func(c *fanout.Config) { c.PollInterval = time.Hour },
			"Config.RetryMin":     func(c *fanout.Config) { c.RetryMin = time.Hour },
			"Config.DrainTimeout": func(c *fanout.Config) { c.DrainTimeout = -1 },
			"CursorConfig.Lease":  func(c *fanout.Config) { c.LeaseDuration = 48 * time.Hour },
			"Dialect":             func(c *fanout.Config) { c.Dialect = nil },
		} {
			_, err := f.newDispatcher(f.db.DB, nil, []fanout.Policy{good}, change)
			f.requireField(err, field)
		}
		_, err := f.newDispatcher(nil, nil, []fanout.Policy{good})
		f.ErrorIs(err, base.ErrNilDB)
	})
}

// Run is once, and Close may come before it, again, and from many.
func TestFanout_RunAndClose(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		d, err := f.newDispatcher(f.db.DB, nil, []fanout.Policy{toTopics("p", "copy")})
		f.NoError(err)
		ctx, cancel := context.WithCancel(f.ctx())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		take(f, d.Running(), "the dispatcher")
		f.ErrorContains(d.Run(ctx), "already running")
		cancel()
		err, _ = take(f, ended, "the end")
		f.NoError(err)
		f.NoError(d.Close())
		f.ErrorIs(d.Run(f.ctx()), outbox.ErrClosed)
		f.Zero(f.number("SELECT COUNT(*) FROM %s WHERE {owner_token} IS NOT NULL", f.logTable("group")), "the lease was given back")

		unused, err := f.newDispatcher(f.db.DB, nil, []fanout.Policy{toTopics("p", "copy")})
		f.NoError(err)
		f.NoError(unused.Close())
		f.NoError(unused.Close())
	})
}

// Whoever has lost the lease moves nothing, and his transaction leaves nothing.
func TestCursor_IsFenced(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		f.logN("orders", 0, 5)
		f.stamped(5)
		cursor := func() seam.Cursor[outbox.LogMessage] {
			c, err := seam.NewCursor[outbox.LogMessage](f.outbox, seam.CursorConfig{Group: "fanout:g", Lease: time.Minute})
			f.NoError(err)
			return c
		}
		first, second := cursor(), cursor()
		position, err := first.Acquire(f.ctx())
		f.NoError(err)
		f.Zero(position)
		_, err = second.Acquire(f.ctx())
		f.ErrorIs(err, base.ErrLeaseHeld)
		f.ErrorIs(second.Renew(f.ctx()), outbox.ErrLeaseLost)
		f.NoError(second.Release(f.ctx()), "what it does not have")
		move := func(c seam.Cursor[outbox.LogMessage], to int64, after error) error {
			return outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "copy"}); err != nil {
					return err
				}
				return errors.Join(c.Advance(ctx, tx, 0, to), after)
			})
		}
		f.NoError(move(first, 2, nil))
		f.ErrorIs(move(first, 3, errBoom), errBoom)
		f.Equal(int64(2), f.passed("g"), "rolled back")
		f.NoError(first.Advance(f.ctx(), f.db.DB, 0, 1))
		f.Equal(int64(2), f.passed("g"), "never back")

		f.exec("UPDATE %s SET {locked_until} = {past}", f.logTable("group"))
		f.NoError(first.Renew(f.ctx()), "nobody took it")
		f.exec("UPDATE %s SET {locked_until} = {past}", f.logTable("group"))
		position, err = second.Acquire(f.ctx())
		f.NoError(err)
		f.Equal(int64(2), position)
		f.ErrorIs(move(first, 4, nil), outbox.ErrLeaseLost)
		f.NoError(second.Release(f.ctx()))
		f.ErrorIs(first.Renew(f.ctx()), outbox.ErrLeaseLost, "another has had it in between")
		f.ErrorIs(move(first, 4, nil), outbox.ErrLeaseLost)
		f.Equal(int64(2), f.passed("g"))
		f.Len(f.uuidsOf("copy"), 1)

		messages, err := first.Read(f.ctx(), 2, 2)
		f.NoError(err)
		f.Len(messages, 2)
		f.Equal([]int64{3, 4}, []int64{messages[0].Position, messages[1].Position})
		f.WithinDuration(f.now(), messages[0].LoggedAt.Add(messages[0].Age), time.Minute)
		for _, limit := range []int{0, 1001} {
			_, err = first.Read(f.ctx(), 0, limit)
			f.requireField(err, "limit")
		}
		_, err = seam.NewCursor[outbox.LogMessage](f.outbox, seam.CursorConfig{})
		f.requireField(err, "CursorConfig.Group")
	})
}

// The newer version of a policy takes it over while the older one is still at work, and what is published then goes where the
// newer says. The older stands by, and takes over when the newer is gone.
func TestTrap_ANewerPolicyTakesOver(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		versioned := func(version int64, topics ...string) []fanout.Policy {
			p := toTopics("p", topics...)
			p.Version = version
			return []fanout.Policy{p}
		}
		long := func(c *fanout.Config) { c.LeaseDuration = time.Hour }
		older, newer, other := newLogBook(), newLogBook(), newLogBook()
		f.dispatch(older, versioned(0, "one"), long)
		f.logN("orders", 0, 5)
		f.hasPassed("p", 5)
		stop := f.dispatch(newer, versioned(1, "one", "two"), long)
		f.await(newer, "INFO", "Took over a policy")
		f.logN("orders", 5, 10)
		f.hasPassed("p", 10)
		f.Equal(numbered(0, 10), f.uuidsOf("one"))
		f.Equal(numbered(5, 10), f.uuidsOf("two"))
		f.await(older, "INFO", "has taken over a policy")
		line := f.await(older, "INFO", "A newer version of a policy is at work")
		f.Equal([]any{int64(0), int64(1)}, []any{line.fields["version"], line.fields["version_running"]})

		stopOther := f.dispatch(other, versioned(1, "three"), long) // changed, and its version was forgotten
		f.await(other, "ERROR", "A policy has changed")
		stopOther()
		stop()
		f.logN("orders", 10, 12)
		f.hasPassed("p", 12)
		f.Equal(numbered(0, 12), f.uuidsOf("one"))
		f.Equal(numbered(5, 10), f.uuidsOf("two"))
		_, err := f.newDispatcher(f.db.DB, nil, versioned(-1, "one"))
		f.requireField(err, "Config.Policies[0].Version")
	})
}
