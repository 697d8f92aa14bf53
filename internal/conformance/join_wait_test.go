package conformance

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
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN050_051_WaitsHaveATopicAndSayWhatFollows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id, _ := f.startWith(f.joins(), "s", 1)
		for topic, c := range map[string]*join.Coordinator{
			"join.wait": f.joins(), "my waits": f.joins(func(c *join.Config) { c.WaitTopic = "my waits" }),
		} {
			w := waits(id, "next", "failed")
			w.FailIfAnyStepFailed = true
			w.OnComplete.Headers = map[string]string{"k": "v"}
			w.Timeout = time.Hour
			message := f.wait(c, w)
			records, err := f.outbox.Get(f.ctx(), message)
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
		c := f.joins(func(c *join.Config) { c.WaitTopic = "my waits" })
		f.runWaits(c)
		f.endSteps("s", 0)
		f.Equal("completed", string(f.continues(f.rows("{topic} = 'my waits'")[0].id, "next").Payload))
		f.Equal(int(outbox.Ready), f.rows("{topic} = 'join.wait'")[0].status, "another topic, another handler")
	})
}

// Whoever knows the format can wait without the coordinator.
func TestJOIN051_AWaitOfAnotherMaker(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		id, _ := f.startWith(c, "s", 1)
		msg := message.NewMessage("by hand", fmt.Appendf(nil, ` {"join_id": "%s", "on_complete": {"topic": "next", "payload": "Z28="}, "comment": 1} `, id))
		f.NoError(f.publisher(f.db.DB).Publish(join.DefaultWaitTopic, msg))
		wait := f.rows("{uuid} = 'by hand'")[0].id
		f.Eventually(func() bool { return f.joinRow(id).waiting == 1 }, patience, 2*time.Millisecond)
		f.endSteps("s", 1)
		f.Equal("go", string(f.continues(wait, "next").Payload))
		f.Zero(f.row(wait).retries)
	})
}

func TestJOIN052_AWaitThatCannotBeFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		ended, pending := f.start(c, join.StartParams{Open: true}), f.start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.Seal(f.ctx(), nil, ended))
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
		f.runWaits(c, func(c *outbox.SubscriberConfig) {
			c.Hooks.OnSettle = func(e outbox.SettleEvent) {
				mu.Lock()
				defer mu.Unlock()
				for outcome, n := range e.Outcomes {
					outcomes[outcome] += n
				}
			}
		})
		for _, one := range cases {
			id := f.enqueue(outbox.Message{Topic: join.DefaultWaitTopic, Payload: []byte(one.payload)})[0]
			r := f.becomes(id, outbox.Failed)
			f.Contains(r.lastError, one.reason, one.payload)
			f.Zero(r.retries, "one attempt: %s", one.payload)
		}
		f.Equal(len(cases), f.count(), "nothing follows")
		f.stands(c, pending, join.Pending, 0, 0)
		f.Zero(f.joinRow(pending).waiting)
		f.Eventually(func() bool { mu.Lock(); defer mu.Unlock(); return outcomes[outbox.Fail] == len(cases) }, patience, time.Millisecond)
		f.Len(outcomes, 1, "nothing was tried twice")
	})
}

func TestJOIN052_AWaitThatCannotBeIsRefusedAtOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 1})
		_, err := c.EnqueueWait(f.ctx(), nil, waits(join.ID{1}, "next", ""))
		f.ErrorIs(err, join.ErrNotFound)
		f.ErrorContains(err, join.ID{1}.String())
		long := strings.Repeat("t", 256)
		for field, bad := range map[string][]join.Wait{
			"join id":               {{OnComplete: join.Continuation{Topic: "next"}}},
			"Wait.OnComplete.Topic": {{Join: id}, waits(id, long, ""), waits(id, " next", ""), waits(id, "a\x00", "")},
			"Wait.OnFail.Topic":     {waits(id, "next", long), {Join: id, OnComplete: join.Continuation{Topic: "next"}, OnFail: &join.Continuation{}}},
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
				_, err := c.EnqueueWait(f.ctx(), nil, w)
				f.requireField(err, field)
			}
		}
		f.Zero(f.count())
		f.Zero(f.joinRow(id).waiting)
		err = c.HandleWait(message.NewMessage("from elsewhere", []byte("{}")))
		f.True(outbox.IsPermanent(err), "%v", err)
	})
}

func TestJOIN053_OBX085_AWaitIsPutOffUntilItsJoinHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const recheck = 60 * 24 * time.Hour // more than an int of milliseconds holds
		c := f.joins(func(c *join.Config) { c.RecheckInterval = recheck })
		id, _ := f.startWith(c, "s", 3)
		before := f.now()
		wait := f.wait(c, waits(id, "next", "failed"))
		r := f.row(wait)
		f.Equal(int(outbox.Ready), r.status)
		f.between(before.Add(recheck), f.now().Add(recheck), r.nextAttempt)
		f.Empty(f.claim(join.DefaultWaitTopic), "nobody claims what has nothing to do")
		steps := f.claim("s")
		f.settle(settled(outbox.Ack, steps[0])...)
		f.settle(settled(outbox.Fail, steps[1])...)
		f.False(f.row(wait).isDue, "not before the last step")
		before = f.now()
		f.settle(settled(outbox.Ack, steps[2])...)
		r = f.row(wait)
		f.between(before, f.now(), r.nextAttempt)
		f.Zero(r.retries)
		claimed := f.claim(join.DefaultWaitTopic)
		f.Equal([]outbox.MessageID{wait}, messageIDs(claimed), "whoever ends the join makes it due")
	})
}

func TestJOIN053_OBX085_WaitingSpendsNoAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		c := f.joinsLogging(book, func(c *join.Config) { c.RecheckInterval = 3 * time.Millisecond })
		f.runWaits(c, func(c *outbox.SubscriberConfig) { c.MaxAttempts = 1 })
		id, _ := f.startWith(c, "s", 1)
		wait := f.wait(c, waits(id, "next", ""))
		f.Eventually(func() bool { return len(book.at("DEBUG", "waits on")) >= 5 }, patience, time.Millisecond, "it looks again and again")
		f.Zero(f.row(wait).retries)
		f.endSteps("s", 0)
		f.continues(wait, "next")
		r := f.row(wait)
		f.Zero(r.retries)
		f.False(r.hasError)
		f.Equal(1, f.joinRow(id).waiting)
	})
}

func TestJOIN054_OBX086_088_AFailedJoinTakesThePathOfFailureIfThereIsOne(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		for _, onFail := range []string{"failed", ""} {
			id, _ := f.startWith(c, "s", 2)
			w := waits(id, "next", onFail)
			w.FailIfAnyStepFailed = true
			wait := f.wait(c, w)
			f.endSteps("s", 1)
			f.stands(c, id, join.Failed, 1, 1)
			if onFail != "" {
				f.Equal("failed", string(f.continues(wait, onFail).Payload))
			} else {
				r := f.becomes(wait, outbox.Done)
				f.False(r.hasError, "that nothing follows is no error")
			}
		}
		f.Len(f.rows("{topic} IN ('next', 'failed')"), 1)
	})
}

func TestJOIN055_OBX087_OtherwiseItTakesThePathOfSuccess(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		for i, failures := range []int{0, 0, 1, 2} {
			id, _ := f.startWith(c, "s", 2)
			w := waits(id, "next", "failed")
			w.FailIfAnyStepFailed = i == 0 // and no step has failed
			wait := f.wait(c, w)
			f.endSteps("s", failures)
			next := f.continues(wait, "next")
			f.Equal("completed", string(next.Payload))
			f.NotEmpty(next.UUID)
			f.settle(settled(outbox.Ack, next)...)
		}
		f.Empty(f.rows("{topic} = 'failed'"))
	})
}

// refuseTopic makes the database refuse messages of a topic.
func (f *fixture) refuseTopic(topic string) (allow func()) {
	f.t.Helper()
	if f.db.Name == testdb.SQLite {
		f.exec("CREATE TRIGGER refuse_topic BEFORE INSERT ON outbox WHEN NEW.topic = '%s' BEGIN SELECT RAISE(ABORT, 'refused'); END", topic)
		return func() { f.exec("DROP TRIGGER refuse_topic") }
	}
	f.exec("ALTER TABLE {outbox} ADD CONSTRAINT refuse_topic CHECK ({topic} <> '%s')", topic)
	return func() { f.exec("ALTER TABLE {outbox} DROP CONSTRAINT refuse_topic") }
}

func TestJOIN056_TheWaitEndsTogetherWithItsContinuation(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "s", 1)
		f.endSteps("s", 0)

		// Without its continuation a wait does not end.
		allow := f.refuseTopic("next")
		wait := f.wait(c, waits(id, "next", ""))
		messages := f.subscribe(f.subscriber(func(c *outbox.SubscriberConfig) { c.MaxAttempts = -1 }), join.DefaultWaitTopic)
		msg := f.receive(messages)
		f.Error(c.HandleWait(msg))
		f.Equal(int(outbox.InProgress), f.row(wait).status)
		msg.Nack()
		allow()

		// Nor is there a continuation without its end: here somebody else has the message meanwhile.
		msg = f.receive(messages)
		f.Equal(1, f.delivery(msg).Attempt(), "what the database refuses spends no attempt of the wait")
		stolen := base.NewOwnerToken()
		f.exec("UPDATE {outbox_state} SET {owner_token} = '%s' WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", stolen, wait)
		f.ErrorIs(c.HandleWait(msg), outbox.ErrLeaseLost)
		f.Empty(f.rows("{topic} = 'next'"))
		msg.Nack()

		f.settle(outbox.Settlement{Receipt: outbox.Receipt{Seq: f.row(wait).seq, Owner: stolen}, Outcome: outbox.Release})
		msg = f.receive(messages)
		f.NoError(c.HandleWait(msg))
		f.Equal(int(outbox.Done), f.row(wait).status, "done by the handler's transaction, before its ack")
		msg.Ack()
		f.continues(wait, "next")
	})
}

func TestJOIN057_AWaitDecidesByTheJoinAlone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "s", 3)
		wait := f.wait(c, waits(id, "next", "failed"))
		f.endSteps("s", 2)
		// What the messages of the steps were, and what the steps are, plays no part.
		f.remove("{topic} = 's'")
		f.exec("DELETE FROM {member} WHERE {join_id} = '%s'", id)
		f.runWaits(c)
		next := f.continues(wait, "next")
		f.Equal("1 2", next.Headers[join.HeaderCompletedSteps]+" "+next.Headers[join.HeaderFailedSteps])
	})
}
