package conformance

import (
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// one is the only line of a level with a word in it.
func (f *fixture) one(book *logBook, level, word string) logLine {
	f.t.Helper()
	found := book.at(level, word)
	f.Len(found, 1, "%s %q in %v", level, word, book.lines())
	return found[0]
}

func TestJOIN070_StartingAJoinIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		id := f.start(f.joinsLogging(book), join.StartParams{GroupingKey: "tenant 7", ExpectedSteps: 3, Metadata: "secret"})
		line := f.one(book, "INFO", "join")
		f.Equal(id.String(), line.fields["join_id"])
		f.Equal("tenant 7", line.fields["grouping_key"])
		f.Equal(3, line.fields["expected_steps"])
		f.NotContains(line.String(), "secret")
		_, err := f.joinsLogging(book).Start(f.ctx(), nil, join.StartParams{})
		f.Error(err)
		f.Len(book.lines(), 1, "what is refused has not started")
	})
}

func TestJOIN071_AttachingIsLoggedAtDebug(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		c := f.joinsLogging(book)
		id := f.start(c, join.StartParams{Open: true})
		ids := append(f.enqueueN("s", 2), outbox.MessageID{1})
		f.NoError(c.Attach(f.ctx(), nil, id, ids[:2]...))
		f.NoError(c.AttachByReport(f.ctx(), nil, id, ids[2]))
		ids = append(ids, f.addSteps(c, id, "s", 1)...)
		lines := book.at("DEBUG", "Attached")
		f.Len(lines, 4)
		for i, line := range lines {
			f.Equal(id.String(), line.fields["join_id"])
			f.Equal(ids[i].String(), line.fields["message_id"])
		}
		f.Error(c.Attach(f.ctx(), nil, id, outbox.MessageID{2}))
		f.Len(book.at("DEBUG", "Attached"), 4)
	})
}

// Whatever ends a join says so, once, and tells the hook.
func TestJOIN072_TheEndOfAJoinIsLoggedAtInfo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		for name, end := range map[string]struct {
			join   join.StartParams
			want   outbox.JoinEvent
			status string
			end    func(c *join.Coordinator, o *outbox.Outbox, id join.ID, steps []outbox.MessageID) error
		}{
			"settling": {
				join.StartParams{ExpectedSteps: 2}, outbox.JoinEvent{Status: join.Failed, Expected: 2, Completed: 1, Failed: 1}, "failed",
				func(_ *join.Coordinator, o *outbox.Outbox, _ join.ID, _ []outbox.MessageID) error {
					claimed := f.claim("s")
					_, err := o.Settle(f.ctx(), f.db.DB, append(settled(outbox.Ack, claimed[0]), settled(outbox.Fail, claimed[1])...))
					return err
				},
			},
			"reporting": {
				join.StartParams{ExpectedSteps: 2}, outbox.JoinEvent{Status: join.Completed, Expected: 2, Completed: 2}, "completed",
				func(c *join.Coordinator, _ *outbox.Outbox, id join.ID, steps []outbox.MessageID) error {
					return errors.Join(c.ReportStepCompleted(f.ctx(), nil, id, steps[0]), c.ReportStepCompleted(f.ctx(), nil, id, steps[1]),
						c.ReportStepCompleted(f.ctx(), nil, id, steps[1]))
				},
			},
			"cancelling": {
				join.StartParams{Open: true}, outbox.JoinEvent{Status: join.Cancelled}, "cancelled",
				func(c *join.Coordinator, _ *outbox.Outbox, id join.ID, _ []outbox.MessageID) error {
					return c.Cancel(f.ctx(), nil, id)
				},
			},
			"sealing": {
				join.StartParams{Open: true, Quorum: 3}, outbox.JoinEvent{Status: join.Failed, Expected: 2}, "failed",
				func(c *join.Coordinator, _ *outbox.Outbox, id join.ID, _ []outbox.MessageID) error {
					return c.Seal(f.ctx(), nil, id)
				},
			},
			"attaching": {
				join.StartParams{Open: true, Quorum: 1}, outbox.JoinEvent{Status: join.Completed, Completed: 1}, "completed",
				func(c *join.Coordinator, o *outbox.Outbox, id join.ID, _ []outbox.MessageID) error {
					done := f.claimOne("done")
					f.settle(settled(outbox.Ack, done)...)
					return c.Attach(f.ctx(), nil, id, done.ID)
				},
			},
		} {
			f.clear()
			id := f.start(c, end.join)
			steps := f.addSteps(c, id, "s", 2)
			f.wait(c, waits(id, "next", "")) // of several topics a join ends once all the same
			f.wait(f.joins(func(c *join.Config) { c.WaitTopic = "more" }), waits(id, "next", ""))

			book := newLogBook()
			var told []outbox.JoinEvent
			hooks := outbox.Hooks{OnJoinEnd: func(e outbox.JoinEvent) { told = append(told, e) }}
			config := f.config
			config.Hooks = hooks
			o, err := outbox.New(f.db.DB, config, book)
			f.NoError(err)
			f.NoError(end.end(f.joinsLogging(book, func(c *join.Config) { c.Hooks = hooks }), o, id, steps), name)
			line := f.one(book, "INFO", "Join ended")
			f.Equal(id.String(), line.fields["join_id"], name)
			f.Equal(end.status, line.fields["status"], name)
			f.Equal([]any{end.want.Expected, end.want.Completed, end.want.Failed},
				[]any{line.fields["expected"], line.fields["completed"], line.fields["failed"]}, name)
			end.want.ID = id
			f.Equal([]outbox.JoinEvent{end.want}, told, name)
		}
	})
}

func TestJOIN073_WhatAWaitDecidesIsLogged(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		c := f.joinsLogging(book, func(c *join.Config) { c.RecheckInterval = 5 * time.Millisecond })
		f.runWaits(c)
		id, _ := f.startWith(c, "s", 1)
		f.wait(c, waits(id, "next", ""))
		f.Equal(id.String(), f.await(book, "DEBUG", "waits on").fields["join_id"])
		f.endSteps("s", 0)
		line := f.await(book, "DEBUG", "continues with next")
		f.Equal(id.String(), line.fields["join_id"])
		f.Equal("completed", line.fields["status"])

		failed, _ := f.startWith(c, "s", 1)
		w := waits(failed, "next", "")
		w.FailIfAnyStepFailed = true
		f.wait(c, w)
		w.OnFail = &join.Continuation{Topic: "failure"}
		f.wait(c, w)
		f.endSteps("s", 1)
		f.Equal(failed.String(), f.await(book, "DEBUG", "nothing follows").fields["join_id"])
		f.Equal(failed.String(), f.await(book, "DEBUG", "continues with failure").fields["join_id"])

		parent := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachJoin(f.ctx(), nil, parent, failed))
		f.Equal(failed.String(), f.await(book, "DEBUG", "parent").fields["join_id"])
	})
}

// Payloads and metadata appear in no line.
func TestJOIN073_OBX119_PayloadsOfContinuationsAreNeverLogged(t *testing.T) {
	const secret = "4111-1111-1111-1111"
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		c := f.joinsLogging(book)
		f.runWaits(c)
		id, _ := f.startWith(c, "s", 1)
		w := waits(id, "next", "")
		w.OnComplete.Payload = []byte(secret)
		wait := f.wait(c, w)
		_, err := c.EnqueueWait(f.ctx(), nil, join.Wait{Join: join.ID{1}, OnComplete: w.OnComplete})
		f.NotContains(err.Error(), secret)
		bad := f.enqueue(outbox.Message{Topic: join.DefaultWaitTopic, Payload: []byte(`{"join_id": "` + secret + `"}`)})[0]
		f.endSteps("s", 0)
		f.continues(wait, "next")
		f.NotContains(f.becomes(bad, outbox.Failed).lastError, secret)
		f.NotEmpty(book.lines())
		for _, line := range book.lines() {
			f.NotContains(line.String(), secret)
		}
	})
}
