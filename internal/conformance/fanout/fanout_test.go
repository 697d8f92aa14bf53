package fanout_test

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
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// Each destination gets what matches, once and in order, as it was.
func TestFanout_CopiesAreAsTheirSource(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		o := f.LogOutbox()
		var ids []outbox.MessageID
		for i, topic := range []string{"orders.new", "bills.new", "orders.gone", "orders/x", "orders.new"} {
			tenant := []string{"a", "b", "a", "a", "b"}[i]
			id, err := o.Enqueue(f.Context(), f.DB.DB, outbox.Message{
				UUID: fmt.Sprint(i), Topic: topic, Payload: []byte{0, byte(i), 0xff}, CorrelationID: "cause", StreamKey: "stream",
				Headers: map[string]string{"tenant": tenant, "fanout_policy": "another", "kept": "ü"}})
			f.NoError(err)
			ids = append(ids, id...)
		}
		byTopic := suite.ToTopics("by topic", "one", "two")
		byTopic.Topics = "orders.*"
		byTenant := suite.ToTopics("by tenant", "three")
		byTenant.Tenant = fanout.Tenant{Header: "tenant", Value: "b"}
		nobody := suite.ToTopics("nobody", "four")
		nobody.Tenant = fanout.Tenant{Header: "tenant", Value: "unknown"}
		byMatch := suite.ToTopics("by match", "five")
		byMatch.Topics, byMatch.Match = "orders/*", func(msg outbox.LogMessage) bool { return msg.Payload[1] == 3 }
		f.Dispatch(nil, []fanout.Policy{byTopic, byTenant, nobody, byMatch, suite.ToTopics("all", "six")})
		for _, policy := range []string{"by topic", "by tenant", "nobody", "by match", "all"} {
			f.HasPassed(policy, 5)
		}
		for topic, want := range map[string]string{"one": "0 2 4", "two": "0 2 4", "three": "1 4", "four": "", "five": "3", "six": "0 1 2 3 4"} {
			f.Equal(want, strings.Join(f.UUIDsOf(topic), " "), topic)
		}
		for i, c := range f.Claim("one") {
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
		f.Sequencer()
		f.LogN("orders", 0, 250)
		policy := suite.ToTopics("p", "copy")
		stop := f.Dispatch(nil, []fanout.Policy{policy})
		f.HasPassed("p", 250)
		stop()
		f.LogN("orders", 250, 300)
		f.Dispatch(nil, []fanout.Policy{policy, suite.ToTopics("new", "new copy")})
		f.HasPassed("p", 300)
		f.HasPassed("new", 300)
		f.Equal(suite.Numbered(0, 300), f.UUIDsOf("copy"))
		f.Equal(suite.Numbered(0, 300), f.UUIDsOf("new copy"))
	})
}

// What was inserted first and commits last is dispatched too.
func TestFanout_LateCommits(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		f.Sequencer()
		f.Dispatch(nil, []fanout.Policy{suite.ToTopics("p", "copy")})
		late, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = late.Rollback() }() // for a failure before the commit
		_, err = f.LogOutbox().Enqueue(f.Context(), late, outbox.Message{UUID: "first", Topic: "orders"})
		f.NoError(err)
		f.EnqueueLogged(f.LogOutbox(), "orders", "second")
		f.HasPassed("p", 1)
		f.NoError(late.Commit())
		f.HasPassed("p", 2)
		f.Equal([]string{"second", "first"}, f.UUIDsOf("copy"))
	})
}

// Two dispatchers have the same policies: each message goes out once, and one takes over from the other.
func TestFanout_DispatchersTakeTurns(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		policies := []fanout.Policy{suite.ToTopics("one", "a", "b"), suite.ToTopics("two", "c")}
		small := func(c *fanout.Config) { c.BatchSize = 7 }
		first := f.Dispatch(nil, policies, small)
		f.Dispatch(nil, policies, small)
		f.LogN("orders", 0, 100)
		f.HasPassed("one", 100)
		first()
		f.LogN("orders", 100, 200)
		for _, policy := range []string{"one", "two"} {
			f.HasPassed(policy, 200)
		}
		for _, topic := range []string{"a", "b", "c"} {
			f.Equal(suite.Numbered(0, 200), f.UUIDsOf(topic))
		}
	})
}

// A dispatch that fails in the middle leaves neither copies nor a moved cursor.
func TestFanout_TheDispatchIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		book := suite.NewLogBook()
		failing := make(chan struct{})
		policy := suite.ToTopics("p", "copy")
		policy.Join = func(ctx context.Context, tx outbox.Executor, source outbox.LogMessage) (id join.ID, ok bool, err error) {
			_, err = f.Outbox.Enqueue(ctx, tx, outbox.Message{UUID: source.UUID, Topic: "side effect"})
			if source.UUID == "7" && !isClosed(failing) {
				err = suite.ErrBoom
			}
			return id, false, err
		}
		f.Dispatch(book, []fanout.Policy{policy, suite.ToTopics("other", "other copy")})
		f.LogN("orders", 0, 10)
		line := f.Await(book, "ERROR", "A policy waits")
		f.ErrorIs(line.Err, suite.ErrBoom)
		f.Equal("p", line.Fields["policy"])
		f.HasPassed("other", 10)
		f.LessOrEqual(f.Passed("p"), int64(7))
		for _, topic := range []string{"copy", "side effect"} {
			f.Len(f.UUIDsOf(topic), int(f.Passed("p")), topic)
		}
		close(failing)
		f.HasPassed("p", 10)
		f.Await(book, "INFO", "A policy continues")
		for _, topic := range []string{"copy", "side effect"} {
			f.Equal(suite.Numbered(0, 10), f.UUIDsOf(topic), topic)
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
		f.Sequencer()
		var commits atomic.Int64
		lost := func(when int64, err error) func(context.Context, faults.Statement) error {
			return func(_ context.Context, s faults.Statement) error {
				if s.Text == faults.Commit && commits.Add(1)%3 == when {
					return err
				}
				return nil
			}
		}
		after := faults.Open(t, f.DB, faults.Hooks{Answer: lost(1, suite.ErrBoom)})
		before := faults.Open(t, f.DB, faults.Hooks{Before: lost(2, &faults.Error{Number: 50000, State: "XX000", Result: 10})})
		small := func(c *fanout.Config) { c.BatchSize = 7 }
		f.LogN("orders", 0, 50)
		f.DispatchOn(after, nil, []fanout.Policy{suite.ToTopics("after", "copy 1")}, small)
		f.HasPassed("after", 50)
		// The last commit is seen in the table before its answer is counted.
		f.Eventually(func() bool { return commits.Load() >= 8 }, suite.Patience, time.Millisecond)
		f.DispatchOn(before, nil, []fanout.Policy{suite.ToTopics("before", "copy 2")}, small)
		f.HasPassed("before", 50)
		f.Equal(suite.Numbered(0, 50), f.UUIDsOf("copy 1"))
		f.Equal(suite.Numbered(0, 50), f.UUIDsOf("copy 2"))
	})
}

// What a policy has not passed yet stays in the log.
func TestFanout_PurgingTheLogSparesWhatAPolicyHasNotPassed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		slow := suite.NewRecorder()
		slow.Fail(suite.ErrBoom)
		f.LogN("orders", 0, 20)
		book := suite.NewLogBook()
		f.Dispatch(book, []fanout.Policy{suite.ToTopics("quick", "copy"), {Name: "slow", Destinations: []fanout.Destination{fanout.ToPublisher("away", slow, "x")}}})
		f.HasPassed("quick", 20)
		f.Await(book, "ERROR", "A policy waits")
		n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(0, n)
		slow.Fail(nil)
		f.HasPassed("slow", 20)
		n, err = f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(20, n)
		f.Equal(20, f.Count(), "the copies")
	})
}

func TestFanout_BadInputIsNamed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		good := suite.ToTopics("p", "copy")
		changed := func(change func(*fanout.Policy)) []fanout.Policy {
			p := suite.ToTopics("p", "copy")
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
			{changed(func(p *fanout.Policy) { p.Destinations[0] = fanout.ToPublisher("", suite.NewRecorder(), "x") }), "Config.Policies[0].Destinations[0]", "no name"},
			{changed(func(p *fanout.Policy) { p.Tenant.Value = "x" }), "Config.Policies[0].Tenant", "no header"},
			{changed(func(p *fanout.Policy) { p.Tenant.Header = "x" }), "Config.Policies[0].Tenant", "name the tenant"},
			{changed(func(p *fanout.Policy) { p.Cadence.Every = 1 }), "Config.Policies[0].Cadence.Every", "1 ms"},
			{changed(func(p *fanout.Policy) { p.Cadence = fanout.Cadence{Every: time.Second, Jitter: time.Minute} }), "Config.Policies[0].Cadence.Jitter", "between"},
			{changed(func(p *fanout.Policy) {
				p.Destinations[0] = fanout.ToStore("eu", f.Outbox, "x")
				p.Join = func(context.Context, outbox.Executor, outbox.LogMessage) (id join.ID, ok bool, err error) {
					return
				}
			}), "Config.Policies[0].Join", "no destination"},
		} {
			_, err := f.NewDispatcher(f.DB.DB, nil, test.policies)
			f.RequireField(err, test.field)
			f.ErrorContains(err, test.text)
		}
		for field, change := range map[string]func(*fanout.Config){
			"Config.BatchSize":    func(c *fanout.Config) { c.BatchSize = 1001 },
			"Config.PollInterval": func(c *fanout.Config) { c.PollInterval = time.Hour },
			"Config.RetryMin":     func(c *fanout.Config) { c.RetryMin = time.Hour },
			"Config.DrainTimeout": func(c *fanout.Config) { c.DrainTimeout = -1 },
			"CursorConfig.Lease":  func(c *fanout.Config) { c.LeaseDuration = 48 * time.Hour },
			"Config.Dialect":      func(c *fanout.Config) { c.Dialect = nil },
		} {
			_, err := f.NewDispatcher(f.DB.DB, nil, []fanout.Policy{good}, change)
			f.RequireField(err, field)
		}
		_, err := f.NewDispatcher(nil, nil, []fanout.Policy{good})
		f.ErrorIs(err, base.ErrNilDB)
	})
}

// Run is once, and Close may come before it, again, and from many.
func TestFanout_RunAndClose(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		d, err := f.NewDispatcher(f.DB.DB, nil, []fanout.Policy{suite.ToTopics("p", "copy")})
		f.NoError(err)
		ctx, cancel := context.WithCancel(f.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		suite.Take(f.T, d.Running(), "the dispatcher")
		f.ErrorContains(d.Run(ctx), "already running")
		cancel()
		err, _ = suite.Take(f.T, ended, "the end")
		f.NoError(err)
		f.NoError(d.Close())
		f.ErrorIs(d.Run(f.Context()), outbox.ErrClosed)
		f.Zero(f.Number("SELECT COUNT(*) FROM %s WHERE {owner_token} IS NOT NULL", f.LogTable("group")), "the lease was given back")

		unused, err := f.NewDispatcher(f.DB.DB, nil, []fanout.Policy{suite.ToTopics("p", "copy")})
		f.NoError(err)
		f.NoError(unused.Close())
		f.NoError(unused.Close())
	})
}

// Whoever has lost the lease moves nothing, and his transaction leaves nothing.
func TestCursor_IsFenced(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		f.LogN("orders", 0, 5)
		f.Stamped(5)
		cursor := func() seam.Cursor[outbox.LogMessage] {
			c, err := seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{Group: "fanout:g", Lease: time.Minute})
			f.NoError(err)
			return c
		}
		first, second := cursor(), cursor()
		position, err := first.Acquire(f.Context())
		f.NoError(err)
		f.Zero(position)
		_, err = second.Acquire(f.Context())
		f.ErrorIs(err, base.ErrLeaseHeld)
		f.ErrorIs(second.Renew(f.Context()), outbox.ErrLeaseLost)
		f.NoError(second.Release(f.Context()), "what it does not have")
		move := func(c seam.Cursor[outbox.LogMessage], to int64, after error) error {
			return outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "copy"}); err != nil {
					return err
				}
				return errors.Join(c.Advance(ctx, tx, 0, to), after)
			})
		}
		f.NoError(move(first, 2, nil))
		f.ErrorIs(move(first, 3, suite.ErrBoom), suite.ErrBoom)
		f.Equal(int64(2), f.Passed("g"), "rolled back")
		f.NoError(first.Advance(f.Context(), f.DB.DB, 0, 1))
		f.Equal(int64(2), f.Passed("g"), "never back")

		f.Exec("UPDATE %s SET {locked_until} = {past}", f.LogTable("group"))
		f.NoError(first.Renew(f.Context()), "nobody took it")
		f.Exec("UPDATE %s SET {locked_until} = {past}", f.LogTable("group"))
		position, err = second.Acquire(f.Context())
		f.NoError(err)
		f.Equal(int64(2), position)
		f.ErrorIs(move(first, 4, nil), outbox.ErrLeaseLost)
		f.NoError(second.Release(f.Context()))
		f.ErrorIs(first.Renew(f.Context()), outbox.ErrLeaseLost, "another has had it in between")
		f.ErrorIs(move(first, 4, nil), outbox.ErrLeaseLost)
		f.Equal(int64(2), f.Passed("g"))
		f.Len(f.UUIDsOf("copy"), 1)

		messages, err := first.Read(f.Context(), 2, 2)
		f.NoError(err)
		f.Len(messages, 2)
		f.Equal([]int64{3, 4}, []int64{messages[0].Position, messages[1].Position})
		f.WithinDuration(f.Now(), messages[0].LoggedAt.Add(messages[0].Age), time.Minute)
		for _, limit := range []int{0, 1001} {
			_, err = first.Read(f.Context(), 0, limit)
			f.RequireField(err, "limit")
		}
		_, err = seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{})
		f.RequireField(err, "CursorConfig.Group")
	})
}

// The newer version of a policy takes it over while the older one is still at work, and what is published then goes where the
// newer says. The older stands by, and takes over when the newer is gone.
func TestTrap_ANewerPolicyTakesOver(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		versioned := func(version int64, topics ...string) []fanout.Policy {
			p := suite.ToTopics("p", topics...)
			p.Version = version
			return []fanout.Policy{p}
		}
		long := func(c *fanout.Config) { c.LeaseDuration = time.Hour }
		older, newer, other := suite.NewLogBook(), suite.NewLogBook(), suite.NewLogBook()
		f.Dispatch(older, versioned(0, "one"), long)
		f.LogN("orders", 0, 5)
		f.HasPassed("p", 5)
		stop := f.Dispatch(newer, versioned(1, "one", "two"), long)
		f.Await(newer, "INFO", "Took over a policy")
		f.LogN("orders", 5, 10)
		f.HasPassed("p", 10)
		f.Equal(suite.Numbered(0, 10), f.UUIDsOf("one"))
		f.Equal(suite.Numbered(5, 10), f.UUIDsOf("two"))
		f.Await(older, "INFO", "has taken over a policy")
		line := f.Await(older, "INFO", "A newer version of a policy is at work")
		f.Equal([]any{int64(0), int64(1)}, []any{line.Fields["version"], line.Fields["version_running"]})

		stopOther := f.Dispatch(other, versioned(1, "three"), long) // changed, and its version was forgotten
		f.Await(other, "ERROR", "A policy has changed")
		stopOther()
		stop()
		f.LogN("orders", 10, 12)
		f.HasPassed("p", 12)
		f.Equal(suite.Numbered(0, 12), f.UUIDsOf("one"))
		f.Equal(suite.Numbered(5, 10), f.UUIDsOf("two"))
		_, err := f.NewDispatcher(f.DB.DB, nil, versioned(-1, "one"))
		f.RequireField(err, "Config.Policies[0].Version")
	})
}
