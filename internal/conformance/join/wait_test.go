package join_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN050_051_WaitsHaveATopicAndSayWhatFollows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id, _ := f.StartWith(f.Joins(), "s", 1)
		for topic, c := range map[string]*join.Coordinator{
			"join.wait": f.Joins(), "my waits": f.Joins(func(c *join.Config) { c.WaitTopic = "my waits" }),
		} {
			w := suite.Waits(id, "next", "failed")
			w.FailIfAnyStepFailed = true
			w.OnComplete.Headers = map[string]string{"k": "v"}
			w.Timeout = time.Hour
			message := f.Wait(c, w)
			records, err := f.Outbox.Get(f.Context(), message)
			f.NoError(err)
			f.Len(records, 1)
			f.Equal(topic, records[0].Topic)
			var payload map[string]any
			f.NoError(json.Unmarshal(records[0].Payload, &payload))
			f.Equal(map[string]any{
				"join_id": id.String(), "fail_if_any_step_failed": true, "timeout_ms": 3_600_000.0,
				"on_complete": map[string]any{"topic": "next", "payload": "Y29tcGxldGVk", "headers": map[string]any{"k": "v"}}, // base64
				"on_fail":     map[string]any{"topic": "failed", "payload": "ZmFpbGVk"},
			}, payload)
		}
		f.Equal(join.DefaultWaitTopic, "join.wait")
		c := f.Joins(func(c *join.Config) { c.WaitTopic = "my waits" })
		f.RunWaits(c)
		f.EndSteps("s", 0)
		f.Equal("completed", string(f.Continues(f.Rows("{topic} = 'my waits'")[0].ID, "next").Payload))
		f.Equal(int(outbox.Ready), f.Rows("{topic} = 'join.wait'")[0].Status, "another topic, another handler")
	})
}

// Whoever knows the format can wait without the coordinator.
func TestJOIN051_AWaitOfAnotherMaker(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		id, _ := f.StartWith(c, "s", 1)
		msg := message.NewMessage("by hand", fmt.Appendf(nil, ` {"join_id": "%s", "on_complete": {"topic": "next", "payload": "Z28="}, "comment": 1} `, id))
		f.NoError(f.Publisher(f.DB.DB).Publish(join.DefaultWaitTopic, msg))
		wait := f.Rows("{uuid} = 'by hand'")[0].ID
		f.Eventually(func() bool { return f.JoinRow(id).Waiting == 1 }, suite.Patience, 2*time.Millisecond)
		f.EndSteps("s", 1)
		f.Equal("go", string(f.Continues(wait, "next").Payload))
		f.Zero(f.Row(wait).Retries)
	})
}

func TestJOIN052_AWaitThatCannotBeFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		ended, pending := f.Start(c, join.StartParams{Open: true}), f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.Seal(f.Context(), nil, ended))
		const missing = "0192a000-0000-7000-8000-000000000000"
		const ours, next = "the payload is no wait for a join", `"on_complete": {"topic": "next"}`
		wait := func(id any, rest string) string { return fmt.Sprintf(`{"join_id": "%s", %s}`, id, rest) }
		cases := []struct{ payload, reason string }{
			{"", ours},
			{"not a wait", ours},
			{"\x00\xff", ours},
			{"null", ours},
			{"[]", ours},
			{"{}", ours},
			{`"` + pending.String() + `"`, ours},
			{wait(pending, next) + " x", ours},
			{wait(ended, next) + wait(ended, next), ours},
			{wait(ended, next) + "}", ours},
			{wait(ended, next)[:30], ours},
			{wait("not an id", next), ours},
			{wait(join.ID{}, next), ours},
			{wait(ended, `"on_fail": {"topic": "next"}`), ours},
			{wait(ended, `"on_complete": {"topic": ""}`), ours},
			{wait(ended, `"on_complete": {"topic": "`+strings.Repeat("t", 256)+`"}`), ours},
			{wait(ended, `"on_complete": {"topic": "next "}`), ours},
			{wait(ended, `"on_complete": {"topic": "next", "payload": "%"}`), ours},
			{wait(ended, `"on_complete": {"topic": "next", "headers": {"correlation_id": "`+strings.Repeat("c", 256)+`"}}`), ours},
			{wait(ended, next+`, "on_fail": {"topic": ""}`), ours},
			{wait(ended, next+`, "timeout_ms": -1`), ours},
			{wait(ended, next+`, "timeout_ms": 9223372036854775807`), ours},
			{wait(ended, next+`, "fail_if_any_step_failed": "yes"`), ours},
			{wait(ended, `"parent_join_id": "`+join.ID{}.String()+`"`), ours},
			{wait(missing, next), missing},
			{wait(missing, next), "there is no such join"},
			{wait(ended, `"parent_join_id": "`+pending.String()+`"`), "not a step of the join"},
		}
		var mu sync.Mutex
		outcomes := map[outbox.Outcome]int{}
		f.RunWaits(c, func(c *outbox.SubscriberConfig) {
			c.Hooks.OnSettle = func(e outbox.SettleEvent) {
				if e.Err != nil || e.Busy > 0 {
					return // it is settled again
				}
				mu.Lock()
				defer mu.Unlock()
				for outcome, n := range e.Outcomes {
					outcomes[outcome] += n
				}
			}
		})
		for _, one := range cases {
			id := f.Enqueue(outbox.Message{Topic: join.DefaultWaitTopic, Payload: []byte(one.payload)})[0]
			r := f.Becomes(id, outbox.Failed)
			f.Contains(r.LastError, one.reason, one.payload)
			f.Zero(r.Retries, "one attempt: %s", one.payload)
		}
		f.Equal(len(cases), f.Count(), "nothing follows")
		f.Stands(c, pending, join.Pending, 0, 0)
		f.Zero(f.JoinRow(pending).Waiting)
		f.Eventually(func() bool { mu.Lock(); defer mu.Unlock(); return outcomes[outbox.Fail] == len(cases) }, suite.Patience, time.Millisecond)
		f.Len(outcomes, 1, "nothing was tried twice")
	})
}

func TestJOIN052_AWaitThatCannotBeIsRefusedAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		_, err := c.EnqueueWait(f.Context(), nil, suite.Waits(join.ID{1}, "next", ""))
		f.ErrorIs(err, join.ErrNotFound)
		f.ErrorContains(err, join.ID{1}.String())
		long := strings.Repeat("t", 256)
		for field, bad := range map[string][]join.Wait{
			"join id":               {{OnComplete: join.Continuation{Topic: "next"}}},
			"Wait.OnComplete.Topic": {{Join: id}, suite.Waits(id, long, ""), suite.Waits(id, " next", ""), suite.Waits(id, "a\x00", "")},
			"Wait.OnFail.Topic":     {suite.Waits(id, "next", long), {Join: id, OnComplete: join.Continuation{Topic: "next"}, OnFail: &join.Continuation{}}},
			"Wait.OnComplete.Headers": {
				{Join: id, OnComplete: join.Continuation{Topic: "next", Headers: map[string]string{"k": "\xff"}}},
				{Join: id, OnComplete: join.Continuation{Topic: "next", Headers: map[string]string{"\xff": "v"}}},
				{Join: id, OnComplete: join.Continuation{Topic: "next", Headers: map[string]string{"correlation_id": long}}},
			},
			"Wait.OnFail.Headers": {
				{Join: id, OnComplete: join.Continuation{Topic: "next"}, OnFail: &join.Continuation{Topic: "x", Headers: map[string]string{"correlation_id": "a\x00"}}},
			},
			"Wait.Timeout": {
				{Join: id, OnComplete: join.Continuation{Topic: "next"}, Timeout: -time.Second},
				{Join: id, OnComplete: join.Continuation{Topic: "next"}, Timeout: -1},
				{Join: id, OnComplete: join.Continuation{Topic: "next"}, Timeout: 11 * 365 * 24 * time.Hour},
			},
		} {
			for _, w := range bad {
				_, err := c.EnqueueWait(f.Context(), nil, w)
				f.RequireField(err, field)
			}
		}
		f.Zero(f.Count())
		f.Zero(f.JoinRow(id).Waiting)
		err = c.HandleWait(message.NewMessage("from elsewhere", []byte("{}")))
		f.True(outbox.IsPermanent(err), "%v", err)
	})
}

func TestJOIN053_OBX085_AWaitIsPutOffUntilItsJoinHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const recheck = 60 * 24 * time.Hour // more than an int of milliseconds holds
		c := f.Joins(func(c *join.Config) { c.RecheckInterval = recheck })
		id, _ := f.StartWith(c, "s", 3)
		before := f.Now()
		wait := f.Wait(c, suite.Waits(id, "next", "failed"))
		r := f.Row(wait)
		f.Equal(int(outbox.Ready), r.Status)
		f.Between(before.Add(recheck), f.Now().Add(recheck), r.NextAttempt)
		f.Empty(f.Claim(join.DefaultWaitTopic), "nobody claims what has nothing to do")
		steps := f.Claim("s")
		f.Settle(suite.Settled(outbox.Ack, steps[0])...)
		f.Settle(suite.Settled(outbox.Fail, steps[1])...)
		f.False(f.Row(wait).IsDue, "not before the last step")
		before = f.Now()
		f.Settle(suite.Settled(outbox.Ack, steps[2])...)
		r = f.Row(wait)
		f.Between(before, f.Now(), r.NextAttempt)
		f.Zero(r.Retries)
		claimed := f.Claim(join.DefaultWaitTopic)
		f.Equal([]outbox.MessageID{wait}, suite.MessageIDs(claimed), "whoever ends the join makes it due")
	})
}

func TestJOIN053_OBX085_WaitingSpendsNoAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		c := f.JoinsLogging(book, func(c *join.Config) { c.RecheckInterval = 3 * time.Millisecond })
		f.RunWaits(c, func(c *outbox.SubscriberConfig) { c.MaxAttempts = 1 })
		id, _ := f.StartWith(c, "s", 1)
		wait := f.Wait(c, suite.Waits(id, "next", ""))
		f.Eventually(func() bool { return len(book.At("DEBUG", "waits on")) >= 5 }, suite.Patience, time.Millisecond, "it looks again and again")
		f.Zero(f.Row(wait).Retries)
		f.EndSteps("s", 0)
		f.Continues(wait, "next")
		r := f.Row(wait)
		f.Zero(r.Retries)
		f.False(r.HasError)
		f.Equal(1, f.JoinRow(id).Waiting)
	})
}

func TestJOIN054_OBX086_088_AFailedJoinTakesThePathOfFailureIfThereIsOne(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		for _, onFail := range []string{"failed", ""} {
			id, _ := f.StartWith(c, "s", 2)
			w := suite.Waits(id, "next", onFail)
			w.FailIfAnyStepFailed = true
			wait := f.Wait(c, w)
			f.EndSteps("s", 1)
			f.Stands(c, id, join.Failed, 1, 1)
			if onFail != "" {
				f.Equal("failed", string(f.Continues(wait, onFail).Payload))
			} else {
				r := f.Becomes(wait, outbox.Done)
				f.False(r.HasError, "that nothing follows is no error")
			}
		}
		f.Len(f.Rows("{topic} IN ('next', 'failed')"), 1)
	})
}

func TestJOIN055_OBX087_OtherwiseItTakesThePathOfSuccess(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		for i, failures := range []int{0, 0, 1, 2} {
			id, _ := f.StartWith(c, "s", 2)
			w := suite.Waits(id, "next", "failed")
			w.FailIfAnyStepFailed = i == 0 // and no step has failed
			wait := f.Wait(c, w)
			f.EndSteps("s", failures)
			next := f.Continues(wait, "next")
			f.Equal("completed", string(next.Payload))
			f.NotEmpty(next.UUID)
			f.Settle(suite.Settled(outbox.Ack, next)...)
		}
		f.Empty(f.Rows("{topic} = 'failed'"))
	})
}

// refuseTopic makes the database refuse messages of a topic.
func (f *fixture) refuseTopic(topic string) (allow func()) {
	f.T.Helper()
	if f.DB.Name == testdb.SQLite {
		f.Exec("CREATE TRIGGER refuse_topic BEFORE INSERT ON outbox WHEN NEW.topic = '%s' BEGIN SELECT RAISE(ABORT, 'refused'); END", topic)
		return func() { f.Exec("DROP TRIGGER refuse_topic") }
	}
	f.Exec("ALTER TABLE {outbox} ADD CONSTRAINT refuse_topic CHECK ({topic} <> '%s')", topic)
	return func() { f.Exec("ALTER TABLE {outbox} DROP CONSTRAINT refuse_topic") }
}

func TestJOIN056_TheWaitEndsTogetherWithItsContinuation(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 1)
		f.EndSteps("s", 0)

		// Without its continuation a wait does not end.
		allow := f.refuseTopic("next")
		wait := f.Wait(c, suite.Waits(id, "next", ""))
		messages := f.Subscribe(f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxAttempts = -1 }), join.DefaultWaitTopic)
		msg := f.Receive(messages)
		f.Error(c.HandleWait(msg))
		f.Equal(int(outbox.InProgress), f.Row(wait).Status)
		msg.Nack()
		allow()

		// Nor is there a continuation without its end: here somebody else has the message meanwhile.
		msg = f.Receive(messages)
		f.Equal(1, f.Delivery(msg).Attempt(), "what the database refuses spends no attempt of the wait")
		stolen := base.NewOwnerToken()
		f.Exec("UPDATE {outbox_state} SET {owner_token} = '%s' WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", stolen, wait)
		f.ErrorIs(c.HandleWait(msg), outbox.ErrLeaseLost)
		f.Empty(f.Rows("{topic} = 'next'"))
		msg.Nack()

		f.Settle(outbox.Settlement{Receipt: outbox.Receipt{Seq: f.Row(wait).Seq, Owner: stolen}, Outcome: outbox.Release})
		msg = f.Receive(messages)
		f.NoError(c.HandleWait(msg))
		f.Equal(int(outbox.Done), f.Row(wait).Status, "done by the handler's transaction, before its ack")
		msg.Ack()
		f.Continues(wait, "next")
	})
}

func TestJOIN057_AWaitDecidesByTheJoinAlone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 3)
		wait := f.Wait(c, suite.Waits(id, "next", "failed"))
		f.EndSteps("s", 2)
		// What the messages of the steps were, and what the steps are, plays no part.
		f.Remove("{topic} = 's'")
		f.Exec("DELETE FROM {member} WHERE {join_id} = '%s'", id)
		f.RunWaits(c)
		next := f.Continues(wait, "next")
		f.Equal("1 2", next.Headers[join.HeaderCompletedSteps]+" "+next.Headers[join.HeaderFailedSteps])
	})
}
