package fanout_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// With a cadence nothing goes out before its slice is due by the database's clock, and each slice goes out once, however
// many dispatchers there are. Slices that were missed go out together.
func TestFanout_SlicesGoOutOnceAndWhenDue(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		const every = 250 * time.Millisecond
		policy := suite.ToTopics("p", "copy")
		policy.Cadence = fanout.Cadence{Every: every, Jitter: every / 5}
		policies := []fanout.Policy{policy, suite.ToTopics("at once", "at once")}
		small := func(c *fanout.Config) { c.BatchSize = 3 }
		first := f.Dispatch(nil, policies, small)
		second := f.Dispatch(nil, policies, small)
		for from := 0; from < 40; from += 10 {
			f.LogN("orders", from, from+10)
			f.HasPassed("at once", from+10)
			f.HasPassed("p", from+10)
		}
		first()
		second()
		f.LogN("orders", 40, 50) // in a slice that is due when nobody is there
		f.Stamped(50)
		missed := f.Number("SELECT MAX(%s) FROM %s", f.Millis("logged_at"), f.LogTable(""))
		f.Eventually(func() bool { return f.Number("SELECT {now_ms}") > missed+2*every.Milliseconds() }, suite.Patience, 10*time.Millisecond)
		f.Dispatch(nil, policies, small)
		f.HasPassed("p", 50)
		f.Equal(suite.Numbered(0, 50), f.UUIDsOf("copy"))

		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {topic} = 'copy')")
		slices := map[int64]int{}
		for _, c := range f.Claim("copy") {
			position, err := strconv.Atoi(c.Headers[fanout.HeaderPosition])
			f.NoError(err)
			slice, err := strconv.ParseInt(c.Headers[fanout.HeaderSlice], 10, 64)
			f.NoError(err)
			logged := f.Number("SELECT %s FROM %s WHERE {position} = %d", f.Millis("logged_at"), f.LogTable(""), position)
			f.Equal(logged/every.Milliseconds(), slice, "the interval in which it was logged")
			f.GreaterOrEqual(c.CreatedAt.UnixMilli()+2, (slice+1)*every.Milliseconds(), "and it went out after that")
			slices[slice]++
		}
		f.GreaterOrEqual(len(slices), 5)
	})
}

// The copies become steps of a join as they fan out: when all have ended, what waits for the join follows.
func TestFanout_AJoinOfWhatFansOutCompletes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		joins := f.Joins()
		book := suite.NewLogBook()
		ended := f.Start(joins, join.StartParams{ExpectedSteps: 3})
		f.NoError(joins.Cancel(f.Context(), nil, ended))
		policy := suite.ToTopics("p", "one", "two", "three")
		policy.Join = func(ctx context.Context, tx outbox.Executor, source outbox.LogMessage) (id join.ID, ok bool, err error) {
			switch source.UUID {
			case "1":
				return id, false, nil
			case "2":
				return ended, true, nil
			}
			id, err = joins.Start(ctx, tx, join.StartParams{ExpectedSteps: 3, GroupingKey: "order " + source.UUID})
			if err != nil {
				return id, false, err
			}
			_, err = joins.EnqueueWait(ctx, tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "done", Payload: []byte(source.UUID)}})
			return id, true, err
		}
		f.Dispatch(book, []fanout.Policy{policy})
		f.LogN("orders", 0, 4)
		f.HasPassed("p", 4)
		f.ErrorIs(f.Await(book, "ERROR", "takes no more steps").Err, join.ErrEnded)
		for _, topic := range []string{"one", "two", "three"} {
			f.Equal(suite.Numbered(0, 4), f.UUIDsOf(topic), "in order, with and without a join")
		}

		for i, topic := range []string{"one", "two", "three"} {
			f.Empty(f.UUIDsOf("done"))
			for _, uuid := range []string{"0", "3"} {
				started, err := joins.ByGroup(f.Context(), nil, "order "+uuid, join.ID{}, 10)
				f.NoError(err)
				f.Len(started, 1)
				f.Equal([]any{join.Pending, i}, []any{started[0].Status, started[0].CompletedSteps})
			}
			f.Settle(suite.Settled(outbox.Ack, f.Claim(topic)...)...)
		}
		waits := f.Subscribe(f.Subscriber(), join.DefaultWaitTopic)
		for range 2 {
			msg := f.Receive(waits)
			f.NoError(joins.HandleWait(msg))
			msg.Ack()
		}
		f.Len(f.UUIDsOf("done"), 2)
		f.Stands(joins, ended, join.Cancelled, 0, 0)
	})
}
