package conformance

import (
	"context"
	"strconv"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/join"
)

// With a cadence nothing goes out before its slice is due by the database's clock, and each slice goes out once, however
// many dispatchers there are. Slices that were missed go out together.
func TestFanout_SlicesGoOutOnceAndWhenDue(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.sequencer()
		const every = 250 * time.Millisecond
		policy := toTopics("p", "copy")
		policy.Cadence = fanout.Cadence{Every: every, Jitter: every / 5}
		policies := []fanout.Policy{policy, toTopics("at once", "at once")}
		small := func(c *fanout.Config) { c.BatchSize = 3 }
		first := f.dispatch(nil, policies, small)
		second := f.dispatch(nil, policies, small)
		for from := 0; from < 40; from += 10 {
			f.logN("orders", from, from+10)
			f.hasPassed("at once", from+10)
			f.hasPassed("p", from+10)
		}
		first()
		second()
		f.logN("orders", 40, 50) // in a slice that is due when nobody is there
		f.stamped(50)
		missed := f.number("SELECT MAX(%s) FROM %s", f.millis("logged_at"), f.logTable(""))
		f.Eventually(func() bool { return f.number("SELECT {now_ms}") > missed+2*every.Milliseconds() }, patience, 10*time.Millisecond)
		f.dispatch(nil, policies, small)
		f.hasPassed("p", 50)
		f.Equal(numbered(0, 50), f.uuidsOf("copy"))

		f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {topic} = 'copy')")
		slices := map[int64]int{}
		for _, c := range f.claim("copy") {
			position, err := strconv.Atoi(c.Headers[fanout.HeaderPosition])
			f.NoError(err)
			slice, err := strconv.ParseInt(c.Headers[fanout.HeaderSlice], 10, 64)
			f.NoError(err)
			logged := f.number("SELECT %s FROM %s WHERE {position} = %d", f.millis("logged_at"), f.logTable(""), position)
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
		f.sequencer()
		joins := f.joins()
		book := newLogBook()
		ended := f.start(joins, join.StartParams{ExpectedSteps: 3})
		f.NoError(joins.Cancel(f.ctx(), nil, ended))
		policy := toTopics("p", "one", "two", "three")
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
		f.dispatch(book, []fanout.Policy{policy})
		f.logN("orders", 0, 4)
		f.hasPassed("p", 4)
		f.ErrorIs(f.await(book, "ERROR", "takes no more steps").err, join.ErrEnded)
		for _, topic := range []string{"one", "two", "three"} {
			f.Equal(numbered(0, 4), f.uuidsOf(topic), "in order, with and without a join")
		}

		for i, topic := range []string{"one", "two", "three"} {
			f.Empty(f.uuidsOf("done"))
			for _, uuid := range []string{"0", "3"} {
				started, err := joins.ByGroup(f.ctx(), nil, "order "+uuid, join.ID{}, 10)
				f.NoError(err)
				f.Len(started, 1)
				f.Equal([]any{join.Pending, i}, []any{started[0].Status, started[0].CompletedSteps})
			}
			f.settle(settled(outbox.Ack, f.claim(topic)...)...)
		}
		waits := f.subscribe(f.subscriber(), join.DefaultWaitTopic)
		for range 2 {
			msg := f.receive(waits)
			f.NoError(joins.HandleWait(msg))
			msg.Ack()
		}
		f.Len(f.uuidsOf("done"), 2)
		f.stands(joins, ended, join.Cancelled, 0, 0)
	})
}
